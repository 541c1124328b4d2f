#include "weft/page/record_numbers.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace weft {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr double kMostStep = 1e15;  // whole numbers in any way of writing

// Hears a record from front to end; keeps no tree of it.
class RecordReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit RecordReader(RecordNumbers& record) : record_(record) {}

  bool null() override { return take(kNone, false); }
  bool boolean(bool) override { return pass(); }
  bool number_integer(int64_t value) override { return take(double(value), true); }
  bool number_unsigned(uint64_t value) override { return take(double(value), true); }
  bool number_float(double value, const std::string&) override { return take(value, false); }
  bool string(std::string&) override { return pass(); }
  bool binary(nlohmann::json::binary_t&) override { return pass(); }
  bool start_object(size_t) override {
    if (++depth_ == 2) {
      in_object_ = true;
      if (top_ == "eval") record_.kind = RecordKind::held_out;
      if (top_ == "tasks") record_.kind = RecordKind::task;
    }
    if (depth_ == 1) is_object_ = true;
    return is_object_;
  }
  bool key(std::string& name) override {
    // Else each number below a long key would have a copy of it.
    if (depth_ == 1 || depth_ == 2) (depth_ == 1 ? top_ : inner_) = name.size() <= kLongestKey ? name : std::string();
    return true;
  }
  bool end_object() override {
    --depth_;
    return pass();
  }
  bool start_array(size_t) override {
    if (++depth_ == 1) return false;
    if (depth_ == 2) in_object_ = false, index_ = 0;
    if (depth_ == 3) sum_ = 0, most_ = kNone, least_ = kNone, count_ = 0;
    return true;
  }
  bool end_array() override {
    if (depth_ == 3 && !in_object_ && count_ > 0 && sum_ > 0 && !top_.empty()) {
      const double mean = sum_ / double(count_);
      add(place() + ".max_over_mean", most_ / mean);
      add(place() + ".min_over_mean", least_ / mean);
    }
    --depth_;
    return pass();
  }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

  // Whether it was a record.
  bool finish() {
    auto& all = record_.numbers;
    const bool judges = record_.kind != RecordKind::step;
    const auto is_other = [&](size_t i) { return of_judgement_[i] != char(judges); };
    size_t kept = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      if (is_other(i)) continue;
      if (kept != i) all[kept] = std::move(all[i]);
      ++kept;
    }
    all.resize(kept);
    return has_step_;
  }

 private:
  bool take(double value, bool is_whole) {
    const bool is_nameless = top_.empty() || (depth_ == 2 && in_object_ && inner_.empty());
    if (is_nameless) return pass();
    if (depth_ == 1 && top_ == "step") {
      has_step_ = is_whole && value >= 0 && value <= kMostStep;
      record_.step = has_step_ ? int64_t(value) : 0;
    } else if (depth_ == 1) {
      add(top_, value);
    } else if (depth_ == 2 && in_object_) {
      if (top_ == "eval")
        add("held_out." + inner_, value, true);
      else if (top_ == "tasks")
        add(inner_, value, true);
      else
        add(top_ + "." + inner_, value);
    } else if (depth_ == 2) {
      add(place(), value);
    } else if (depth_ == 3 && !in_object_) {
      sum_ += value;
      most_ = std::fmax(most_, value);
      least_ = std::fmin(least_, value);
      ++count_;
    }
    return pass();
  }
  // Behind a value of a list.
  bool pass() {
    if (depth_ == 2 && !in_object_) ++index_;
    return depth_ > 0 || is_object_;
  }
  std::string place() const { return top_ + "." + std::to_string(index_); }
  void add(std::string name, double value, bool of_judgement = false) {
    if (record_.numbers.size() >= kMostNumbers) return;
    record_.numbers.emplace_back(std::move(name), std::isfinite(value) ? value : kNone);
    of_judgement_.push_back(char(of_judgement));
  }

  RecordNumbers& record_;
  std::vector<char> of_judgement_;  // of each number
  std::string top_, inner_;         // keys of the record, and of an object in it
  int64_t depth_ = 0, index_ = 0, count_ = 0;
  bool is_object_ = false, in_object_ = false, has_step_ = false;
  double sum_ = 0, most_ = 0, least_ = 0;
};

}  // namespace

std::string_view name_of(RecordKind kind) {
  return kind == RecordKind::step ? "step" : kind == RecordKind::held_out ? "held_out" : "task";
}

bool read_record(std::string_view line, RecordNumbers& record) {
  record.step = 0;
  record.kind = RecordKind::step;
  record.numbers.clear();
  if (line.size() < 2 || line.front() != '{') return false;
  RecordReader reader(record);
  return nlohmann::json::sax_parse(line.begin(), line.end(), &reader) && reader.finish();
}

}  // namespace weft
