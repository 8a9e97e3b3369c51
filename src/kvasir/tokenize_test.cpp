#include "kvasir/tokenize.h"

#include <gtest/gtest.h>

namespace kvasir {
namespace {

TEST(Tokenize, PiecesThatCutACharacterAreStillJson) {
  EXPECT_EQ(json::write(piece_json({.id = 7, .text = " naïve"})), R"({"id":7,"piece":" naïve"})");
  EXPECT_EQ(json::write(piece_json({.id = 8, .text = "a\xE9\x9B"})),
            "{\"id\":8,\"piece\":\"a\xEF\xBF\xBD\",\"bytes\":[97,233,155]}");
}

}  // namespace
}  // namespace kvasir
