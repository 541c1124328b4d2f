#include "weft/step/instructions.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

std::vector<ModelLayer> layers_of(bool embedding, int blocks, bool head) {
  std::vector<ModelLayer> layers;
  int unit = 10;
  if (embedding) layers.push_back({LayerKind::embedding, nullptr, {unit++}});
  for (int i = 0; i < blocks; ++i) layers.push_back({LayerKind::block, nullptr, {unit++}});
  if (head) layers.push_back({LayerKind::head, nullptr, {unit++}});
  return layers;
}

std::string text(Do what, bool embedding, int blocks, bool head) {
  return to_string(instructions_of(what, layers_of(embedding, blocks, head)));
}

TEST(Instructions, ForwardFetchesEachLayerAndTheNextWhileItComputes) {
  EXPECT_EQ(text(Do::forward, true, 2, true),
            "load, fetch 10, prefetch 11, forward 0, release 10, fetch 11, prefetch 12, forward 1, release 11, "
            "fetch 12, prefetch 13, forward 2, release 12, forward 3");
  EXPECT_EQ(text(Do::forward, false, 1, false), "load, receive, fetch 10, forward 0, release 10, send");
}

TEST(Instructions, BackwardWritesTheGradientsOfALayerBeforeTheLayerBeforeIt) {
  EXPECT_EQ(text(Do::backward, true, 1, true),
            "fetch 12, prefetch 11, open_gradients 12, dgrad 2, reduce_gradients 12, release 12, "
            "fetch 11, dgrad 1, release 11, open_gradients 11, wgrad 1, reduce_gradients 11, "
            "dgrad 0, open_gradients 10, wgrad 0, reduce_gradients 10");
  EXPECT_EQ(text(Do::backward, false, 2, false),
            "receive, wait_buffer, fetch 11, prefetch 10, dgrad 1, release 11, open_gradients 11, wgrad 1, "
            "reduce_gradients 11, fetch 10, dgrad 0, release 10, send, open_gradients 10, wgrad 0, "
            "reduce_gradients 10, wait_sent");
}

TEST(Instructions, DgradAndWgradAloneAreTheTwoHalvesOfBackward) {
  EXPECT_EQ(text(Do::dgrad, false, 2, false),
            "receive, wait_buffer, fetch 11, prefetch 10, dgrad 1, release 11, fetch 10, dgrad 0, release 10, send, "
            "wait_sent");
  EXPECT_EQ(text(Do::wgrad, false, 2, false),
            "open_gradients 11, wgrad 1, reduce_gradients 11, open_gradients 10, wgrad 0, reduce_gradients 10");
  EXPECT_EQ(text(Do::wgrad, true, 0, true), "open_gradients 10, wgrad 0, reduce_gradients 10") << "a head has none";
}

TEST(Instructions, ScoringReadsTheHeadAndMakesNoGradient) {
  EXPECT_EQ(to_string(scoring_instructions(layers_of(true, 1, true))),
            "fetch 10, prefetch 11, forward 0, release 10, fetch 11, prefetch 12, forward 1, release 11, fetch 12, "
            "forward 2, release 12");
  EXPECT_EQ(to_string(scoring_instructions(layers_of(false, 1, false))),
            "receive, fetch 10, forward 0, release 10, send");
}

}  // namespace
}  // namespace weft
