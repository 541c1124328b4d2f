// What a recipe chooses from, by value; and the names of each choice in recipes.
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "weft/data/packing.h"
#include "weft/optim/lr_schedule.h"
#include "weft/schedule/pipeline.h"

namespace weft {

using std::string_view_literals::operator""sv;

// Each with its names, in the order of its values.
enum class InitChoice : uint8_t { pretrained, random };
constexpr auto names_of(InitChoice) { return std::array{"pretrained"sv, "random"sv}; }

enum class IdDtype : uint8_t { uint16, uint32 };
constexpr auto names_of(IdDtype) { return std::array{"uint16"sv, "uint32"sv}; }

enum class AttentionMask : uint8_t { causal, block_causal };
constexpr auto names_of(AttentionMask) { return std::array{"causal"sv, "block_causal"sv}; }

// automatic: as the device is (settle_precision of apps/backends.h), before anything asks what it is.
enum class PrecisionChoice : uint8_t { f32, bf16, fp16, f64, automatic };
constexpr auto names_of(PrecisionChoice) { return std::array{"f32"sv, "bf16"sv, "fp16"sv, "f64"sv, "auto"sv}; }

// What becomes of a step whose loss or gradient norm stands out of those before it (optim/spike_rule.h).
enum class SpikeAction : uint8_t { none, skip, rollback };
constexpr auto names_of(SpikeAction) { return std::array{"none"sv, "skip"sv, "rollback"sv}; }

enum class ReduceDtype : uint8_t { f32, bf16 };
constexpr auto names_of(ReduceDtype) { return std::array{"f32"sv, "bf16"sv}; }

enum class NumericsChoice : uint8_t { fast, invariant, nondeterministic };
constexpr auto names_of(NumericsChoice) { return std::array{"fast"sv, "invariant"sv, "nondeterministic"sv}; }

enum class OptimizerKind : uint8_t { adamw, adamw8bit, sgd, muon };
constexpr auto names_of(OptimizerKind) { return std::array{"adamw"sv, "adamw8bit"sv, "sgd"sv, "muon"sv}; }

enum class LrScaling : uint8_t { none, linear, sqrt, sqrt_adam };
constexpr auto names_of(LrScaling) { return std::array{"none"sv, "linear"sv, "sqrt"sv, "sqrt_adam"sv}; }

enum class MuonScale : uint8_t { match_rms_adamw, original };
constexpr auto names_of(MuonScale) { return std::array{"match_rms_adamw"sv, "original"sv}; }

enum class ObjectiveKind : uint8_t { cross_entropy, dpo, grpo, kto, reward, ppo, distill };
constexpr auto names_of(ObjectiveKind) {
  return std::array{"cross_entropy"sv, "dpo"sv, "grpo"sv, "kto"sv, "reward"sv, "ppo"sv, "distill"sv};
}

enum class DivergenceChoice : uint8_t { forward, reverse };
constexpr auto names_of(DivergenceChoice) { return std::array{"forward"sv, "reverse"sv}; }

enum class PreferenceLoss : uint8_t { sigmoid, ipo };
constexpr auto names_of(PreferenceLoss) { return std::array{"sigmoid"sv, "ipo"sv}; }

enum class LossAverage : uint8_t { token, document };
constexpr auto names_of(LossAverage) { return std::array{"token"sv, "document"sv}; }

enum class LossNormalisation : uint8_t { token, sequence, constant };
constexpr auto names_of(LossNormalisation) { return std::array{"token"sv, "sequence"sv, "constant"sv}; }

enum class AdvantageStd : uint8_t { sample, population, none };
constexpr auto names_of(AdvantageStd) { return std::array{"sample"sv, "population"sv, "none"sv}; }

enum class AdapterKind : uint8_t { none, lora, dora, qlora, qdora };
constexpr auto names_of(AdapterKind) { return std::array{"none"sv, "lora"sv, "dora"sv, "qlora"sv, "qdora"sv}; }
constexpr bool has_magnitudes(AdapterKind k) { return k == AdapterKind::dora || k == AdapterKind::qdora; }
constexpr bool is_beside_codes(AdapterKind k) { return k == AdapterKind::qlora || k == AdapterKind::qdora; }

enum class QuantType : uint8_t { nf4, int8 };
constexpr auto names_of(QuantType) { return std::array{"nf4"sv, "int8"sv}; }

enum class CpCommType : uint8_t { p2p, all_gather, a2a, a2a_p2p };
constexpr auto names_of(CpCommType) { return std::array{"p2p"sv, "all_gather"sv, "a2a"sv, "a2a+p2p"sv}; }

enum class ExpertOverflow : uint8_t { error, drop };
constexpr auto names_of(ExpertOverflow) { return std::array{"error"sv, "drop"sv}; }

enum class RecomputeKind : uint8_t { none, selective, full, budget };
constexpr auto names_of(RecomputeKind) { return std::array{"none"sv, "selective"sv, "full"sv, "budget"sv}; }

enum class BackendKind : uint8_t { automatic, cpu, cuda, ref };
constexpr auto names_of(BackendKind) { return std::array{"auto"sv, "cpu"sv, "cuda"sv, "ref"sv}; }

enum class RanksKind : uint8_t { local, mpi };
constexpr auto names_of(RanksKind) { return std::array{"local"sv, "mpi"sv}; }

constexpr auto names_of(PackingKind) { return std::array{"concatenate-and-split"sv, "first-fit"sv}; }
constexpr auto names_of(LrSchedule::Style) { return std::array{"constant"sv, "linear"sv, "cosine"sv, "wsd"sv}; }
constexpr auto names_of(ScheduleKind) { return kScheduleNames; }

template <class E>
concept Choice = requires(E choice) {
  names_of(choice);
};
template <Choice E>
inline constexpr auto kNamesOf = names_of(E{});

template <Choice E>
constexpr std::string_view name_of(E choice) {
  return kNamesOf<E>[size_t(choice)];
}
// None: no value has this name.
template <Choice E>
constexpr std::optional<E> choice_named(std::string_view name) {
  const auto at = std::find(kNamesOf<E>.begin(), kNamesOf<E>.end(), name);
  return at == kNamesOf<E>.end() ? std::nullopt : std::optional(E(at - kNamesOf<E>.begin()));
}

}  // namespace weft

// A choice in a message is its name.
template <weft::Choice E>
struct fmt::formatter<E> : fmt::formatter<std::string_view> {
  auto format(E choice, fmt::format_context& context) const {
    return fmt::formatter<std::string_view>::format(weft::kNamesOf<E>[size_t(choice)], context);
  }
};
