// What a rank does, one thing after the other, for an action of its schedule: what layers compute, and what moves
// between ranks and memories. The executor runs these lists, and so does the dry run that plans memory and traffic.
// Pure functions.
#pragma once
#include <string>
#include <vector>

#include "weft/models/model.h"
#include "weft/schedule/schedule.h"
#include "weft/sharding/param_store.h"

namespace weft {

struct Instruction {
  enum class Op : uint8_t {
    load,              // the micro-batch, from the host
    receive,           // the stream from the chunk before, or its gradient from the chunk after; blocks
    send,              // the same, the other way
    wait_sent,         // until what forward has sent was taken, so that its memory may end
    wait_buffer,       // for a buffer to make the gradient in that is sent
    forward,           // of a layer; a head only remembers its input
    dgrad,             // of a layer; an embedding only remembers its gradient, a head computes loss and all gradients
    wgrad,             // of a layer
    fetch,             // values of a unit, until it is released; blocks
    prefetch,          // of a unit that is fetched next: begins what fetch waits for
    release,           // values of a unit
    open_gradients,    // of a unit, to be written
    reduce_gradients,  // of a unit: they are written, and join the sums over micro-batches and ranks
    finish_gradients,  // behind the last action: the sums that are missing, over ranks and uses of tied weights
  };
  Op op = Op::load;
  int at = 0;  // layer of the chunk, or unit; 0 where there is neither
  bool operator==(const Instruction&) const = default;
};
using Instructions = std::vector<Instruction>;

// For an action on a chunk with these layers.
Instructions instructions_of(Do what, const std::vector<ModelLayer>& layers);
// Forward without training; `forward` of a head is Model::token_losses.
Instructions scoring_instructions(const std::vector<ModelLayer>& layers);

// "fetch"
std::string_view name_of(Instruction::Op op);
// The unit or layer that an instruction acts on, by name: "blocks.3"; empty where it acts on a chunk.
std::string object_of(const Instruction& i, const std::vector<ModelLayer>& layers, const ParamStore& params);
// "fetch 3, forward 0, release 3"
std::string to_string(const Instructions& list);

}  // namespace weft
