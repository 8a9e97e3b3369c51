// SAMP-31: entries travel with the chunk whose text they produced; what a stop cut off is not told.
#include "server/endpoints/token_ledger.h"

#include <gtest/gtest.h>

namespace kvasir::server {
namespace {

constexpr std::size_t kBytesPerToken = 3;

GenerationEvent token(TokenId id, std::string_view text, bool is_stopped = false) {
  GenerationEvent event;
  event.tokens = {id};
  event.logprobs = {Logprobs{-1.0f, {}}};
  event.is_stopped = is_stopped;
  if (!text.empty()) event.pieces.push_back({text::OutputKind::content, std::string(text), {}});
  return event;
}

TokenLedger ledger(bool has_stops) {
  return TokenLedger(has_stops, [](TokenId) { return kBytesPerToken; });
}

TEST(TokenLedger, WithoutStopsTokensLeaveWithTheNextPiece) {
  TokenLedger tokens = ledger(false);
  StreamEvent nothing, both;
  tokens.settle(token(7, ""), nothing);  // half a character
  EXPECT_TRUE(nothing.tokens.empty());
  tokens.settle(token(8, "é"), both);
  EXPECT_EQ(both.tokens, (std::vector<TokenId>{7, 8}));
  EXPECT_EQ(both.logprobs.size(), 2u);
}

TEST(TokenLedger, HeldTextHoldsItsTokens) {
  TokenLedger tokens = ledger(true);
  StreamEvent first, second, third;
  tokens.settle(token(1, "abc"), first);
  tokens.settle(token(2, "d"), second);  // "ef" could begin a stop string
  tokens.settle(token(3, "efghi"), third);
  EXPECT_EQ(first.tokens, std::vector<TokenId>{1});
  EXPECT_EQ(second.tokens, std::vector<TokenId>{2});
  EXPECT_EQ(third.tokens, std::vector<TokenId>{3});
}

TEST(TokenLedger, TokensOfTheStopStringAreNeverTold) {
  TokenLedger tokens = ledger(true);
  StreamEvent first, held, stopped, end;
  tokens.settle(token(1, "abc"), first);
  tokens.settle(token(2, ""), held);
  tokens.settle(token(3, "", /*is_stopped=*/true), stopped);
  GenerationEvent last;
  last.end = ChoiceEnd{};
  tokens.settle(last, end);
  EXPECT_EQ(first.tokens, std::vector<TokenId>{1});
  EXPECT_TRUE(held.tokens.empty() && stopped.tokens.empty() && end.tokens.empty());
}

TEST(TokenLedger, ATokenCutInTheMiddleIsToldOnce) {
  TokenLedger tokens = ledger(true);
  StreamEvent held, stopped;
  tokens.settle(token(2, ""), held);
  tokens.settle(token(3, "ab", /*is_stopped=*/true), stopped);
  EXPECT_EQ(stopped.tokens, std::vector<TokenId>{2});
}

// A token leaves with its first byte; its other bytes, sent later, pay for no other token.
TEST(TokenLedger, ATokenSentInPartsIsPaidInFull) {
  TokenLedger tokens = ledger(true);
  StreamEvent first, second, third, last;
  tokens.settle(token(1, "a"), first);
  tokens.settle(token(2, ""), second);
  tokens.settle(token(3, "bcdef"), third);
  tokens.settle(token(4, "ghi"), last);
  EXPECT_EQ(first.tokens, std::vector<TokenId>{1});
  EXPECT_TRUE(second.tokens.empty());
  EXPECT_EQ(third.tokens, std::vector<TokenId>{2});
  EXPECT_EQ(last.tokens, std::vector<TokenId>{3});
}

TEST(TokenLedger, TheEndReleasesWhatStillWaits) {
  TokenLedger tokens = ledger(true);
  StreamEvent held, end;
  tokens.settle(token(2, ""), held);
  GenerationEvent last;
  last.end = ChoiceEnd{};
  last.pieces.push_back({text::OutputKind::content, "xyz", {}});
  tokens.settle(last, end);
  EXPECT_EQ(end.tokens, std::vector<TokenId>{2});
}

}  // namespace
}  // namespace kvasir::server
