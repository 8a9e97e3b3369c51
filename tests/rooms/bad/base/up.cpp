#include "kv/pool.h"
