#include "weft/data/packing.h"

#include <algorithm>
#include <bit>

#include "weft/base/error.h"

namespace weft {
namespace {

// A group ends with so many documents, if they would fill so many samples, or with this many in any case: what is left
// empty in the last samples of a group is then little, and packing one again takes a tenth of a millisecond.
constexpr int64_t kGroupDocuments = 1024, kGroupSamples = 64, kMostGroupDocuments = 16384;

// The room in each of some samples, and which is the first with enough: a binary tree of maxima.
class Rooms {
 public:
  explicit Rooms(int64_t most) : leaves_(std::bit_ceil(size_t(most))), most_room_(2 * leaves_, 0) {}
  // The first one with room for `size`; -1: none.
  int64_t first_with(int64_t size) const {
    if (most_room_[1] < size) return -1;
    size_t node = 1;
    while (node < leaves_) node = 2 * node + (most_room_[2 * node] < size);
    return int64_t(node - leaves_);
  }
  int64_t room(int64_t i) const { return most_room_[leaves_ + size_t(i)]; }
  void set(int64_t i, int64_t room) {
    size_t node = leaves_ + size_t(i);
    for (most_room_[node] = room; node > 1; node /= 2)
      most_room_[node / 2] = std::max(most_room_[node & ~size_t(1)], most_room_[node | 1]);
  }

 private:
  size_t leaves_;
  std::vector<int64_t> most_room_;  // of node n: of its leaves; the leaves begin at leaves_
};

}  // namespace

Packing::Packing(const TokenSource& source, const Spec& spec)
    : source_(source),
      first_fit_(spec.kind == PackingKind::first_fit),
      cuts_(first_fit_ || spec.cut_at_documents),
      seq_length_(spec.seq_length) {
  WEFT_CHECK(seq_length_ > 0, "samples of {}", seq_length_);
  if (cuts_ && source.num_documents() == 0 && source.size() > 0)
    throw ConfigError(fmt::format(
        "{}: does not say where documents begin, which {} needs; use a text, JSONL or a Megatron pair (weft data run "
        "writes them), or {}",
        source.path(), first_fit_ ? "data.packing = \"first-fit\"" : "data.attn_mask_type = \"block_causal\"",
        first_fit_ ? "\"concatenate-and-split\"" : "\"causal\""));
  const int64_t targets = std::max<int64_t>(source.size() - 1, 0);
  num_samples_ = targets / seq_length_;
  num_windows_ = (targets + seq_length_ - 1) / seq_length_;
  if (!first_fit_) return;
  num_samples_ = 0;
  for (int64_t first = 0, end; first < source.num_documents(); first = end) {
    end = end_of_group(first);
    groups_.push_back({first, num_samples_});
    num_samples_ += pack(first, end, [](int64_t, const Segment&) {});
  }
  groups_.push_back({source.num_documents(), num_samples_});
  num_windows_ = num_samples_;
}

std::vector<Packing::Segment> Packing::segments(int64_t sample) const {
  WEFT_CHECK(sample >= 0 && sample < num_windows_, "sample {} of {}", sample, num_windows_);
  if (first_fit_) return packed(sample);
  const int64_t begin = sample * seq_length_, end = std::min(begin + seq_length_, source_.size() - 1);
  if (cuts_) return cut(begin, end);
  return {{.begin = begin, .size = end - begin}};
}

std::vector<Packing::Segment> Packing::documents_in(int64_t sample) const {
  std::vector<Segment> all = segments(sample);
  if (cuts_ || all.empty() || source_.num_documents() == 0) return all;
  return cut(all.front().begin, all.front().begin + all.front().size);
}

// Tokens [begin, end), in a segment for each document.
std::vector<Packing::Segment> Packing::cut(int64_t begin, int64_t end) const {
  std::vector<Segment> all;
  int64_t document = document_of(begin);
  for (int64_t at = begin; at < end; ++document) {
    const int64_t stop = source_.document_begin(document + 1), last = std::min(stop, end);
    if (last > at) all.push_back({.begin = at, .size = last - at, .row = at - begin, .ends_document = stop <= end});
    at = std::max(at, last);
  }
  return all;
}

int64_t Packing::document_of(int64_t token) const {
  int64_t first = 0, end = source_.num_documents();  // the last that begins at the token or before
  while (end - first > 1) {
    const int64_t middle = first + (end - first) / 2;
    (source_.document_begin(middle) <= token ? first : end) = middle;
  }
  return first;
}

int64_t Packing::end_of_group(int64_t first) const {
  const int64_t all = source_.num_documents(), begin = source_.document_begin(first);
  int64_t end = std::min(all, first + kGroupDocuments);
  const int64_t most = std::min(all, first + kMostGroupDocuments);
  while (end < most && (source_.document_begin(end) - begin) / seq_length_ < kGroupSamples) ++end;
  return end;
}

// Calls visit(sample, segment), samples numbered from 0 in the order in which they are begun; those of a run of whole
// segments are visited once, with the first of them and the size of all. Returns how many samples there are.
template <class Visit>
int64_t Packing::pack(int64_t first, int64_t end, const Visit& visit) const {
  Rooms rooms(end - first);  // a document begins at most one sample that has room
  std::vector<int64_t> begun;
  int64_t samples = 0;
  for (int64_t d = first, begin = source_.document_begin(first), stop; d < end; ++d, begin = stop) {
    stop = source_.document_begin(d + 1);
    const int64_t whole = (stop - begin) / seq_length_, rest = (stop - begin) % seq_length_;
    if (whole > 0) visit(samples, Segment{.begin = begin, .size = whole * seq_length_, .ends_document = rest == 0});
    samples += whole;
    if (rest == 0) continue;
    int64_t into = rooms.first_with(rest);
    if (into < 0) {
      into = int64_t(begun.size());
      begun.push_back(samples++);
      rooms.set(into, seq_length_);
    }
    visit(begun[size_t(into)],
          Segment{.begin = stop - rest, .size = rest, .row = seq_length_ - rooms.room(into), .ends_document = true});
    rooms.set(into, rooms.room(into) - rest);
  }
  return samples;
}

std::vector<Packing::Segment> Packing::packed(int64_t sample) const {
  const auto next = std::upper_bound(groups_.begin(), groups_.end(), sample,
                                     [](int64_t s, const Group& g) { return s < g.first_sample; });
  const Group group = *std::prev(next);
  const int64_t wanted = sample - group.first_sample;
  std::vector<Segment> all;
  pack(group.first_document, next->first_document, [&](int64_t first, const Segment& p) {
    const int64_t nth = wanted - first, in_run = std::max<int64_t>(1, p.size / seq_length_);
    if (nth < 0 || nth >= in_run) return;
    const int64_t begin = p.begin + nth * seq_length_, size = std::min(p.size, seq_length_);
    all.push_back({begin, size, p.row, p.ends_document && nth + 1 == in_run});
  });
  return all;
}

}  // namespace weft
