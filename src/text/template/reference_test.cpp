#include <gtest/gtest.h>
#include "text/verify_templates.h"
namespace kvasir::text {
TEST(R, R) {
  const std::filesystem::path shared = KVASIR_SHARED;
  auto s = verify_templates(shared / "templates", shared / "goldens/templates.json", [](const VerifyDifference& d) { printf("%s / %s: %s\n", d.template_name.c_str(), d.conversation.c_str(), d.what.c_str()); });
  ASSERT_TRUE(s) << s.error().what;
  printf("%zu templates %zu/%zu equal %zu/%zu errors %zu/%zu raised\n", s->n_templates, s->n_equal, s->n_texts, s->n_failed, s->n_errors, s->n_carried, s->n_raised);
}
}
