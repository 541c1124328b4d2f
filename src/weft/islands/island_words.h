// What hub and islands say to each other, as JSON in messages of words (island_channel.h). Between these go numbers:
//
//   island               hub
//   Hello           ->
//                   <-   "wait", now and then, while another gives; Refusal; or Welcome. With "go" the island has what
//                        the hub has; with "give" it sends the outer weights and momentum, for it is ahead; with "take"
//                        it gets them
//   Offer      ->   of the round that it would be of
//                   <-   Reply: "send"; or "late", and the outer weights and momentum
//   numbers         ->   of the round's fragment (OuterSpec::wire)
//                   <-   "wait", now and then; Mean, when the round is over, and the means as numbers
//   Farewell        ->   all its steps are done
//
// The outer weights and momentum are sent fragment by fragment, of each the weights, then the momentum if there is any,
// in f32; of no rounds the weights alone, for nothing has moved. Lists of numbers are cut into messages of
// kChunkWeights.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "weft/islands/island_channel.h"
#include "weft/islands/outer_step.h"

namespace weft {

inline constexpr int64_t kChunkWeights = int64_t{1} << 20;

struct Hello {
  int64_t number = 0;
  OuterAge age;             // of its outer weights
  std::string state;        // a hash of these
  std::string settings;     // shared_settings (recipe/islands.h), a line each
  std::string model, data;  // hashes of what is exchanged, and of the order of the samples
};
struct Welcome {
  enum class Do : uint8_t { go, give, take };
  Do what = Do::go;
  OuterAge age;         // of the hub's
  int64_t counted = 0;  // the last round that had this island's numbers
};
struct Reply {
  bool is_late = false;
  OuterAge age;  // as Welcome
  int64_t counted = 0;
};
struct RoundOffer {
  int64_t round = 0;  // 0: farewell
  int64_t step = 0;   // that the island is after
};
struct Mean {
  int64_t round = 0, islands = 0;  // how many of them; round 0: "wait"
  int64_t step = 0;                // that the furthest of them is after
};

void say(IslandChannel& channel, const Hello& hello);
void say(IslandChannel& channel, const Welcome& welcome);
void say(IslandChannel& channel, const Reply& reply);
void say(IslandChannel& channel, const Mean& mean);
void say_wait(IslandChannel& channel);
void say_refusal(IslandChannel& channel, const std::string& why);
void say(IslandChannel& channel, const RoundOffer& offer);
void say_farewell(IslandChannel& channel);

// The hub does not take an island, and why.
class RefusedIsland : public Error {
 public:
  using Error::Error;
};

// All throw ChannelError for what is not due.
Hello hear_hello(IslandChannel& channel);
// Also RefusedIsland. None, and a mean of round 0: "wait", to be heard again.
std::optional<Welcome> hear_welcome(IslandChannel& channel);
Mean hear_mean(IslandChannel& channel);
Reply hear_reply(IslandChannel& channel);
RoundOffer hear_offer(IslandChannel& channel);

}  // namespace weft
