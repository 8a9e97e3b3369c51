#include "kv/pool.h"
#include "base/ids.h"
