// Which tokens of a source make a sample (docs/formats/sample_order.md).
//   S  tokens of a sample (seq_length)
#pragma once
#include <cstdint>
#include <vector>

#include "weft/data/token_source.h"

namespace weft {

// concatenate_and_split: all tokens of a source, one after the other, are cut each S.
// first_fit: a document goes whole into the first sample that has room for it; of longer ones every S tokens are a
// sample, and the rest is packed. What stays empty is filled up.
enum class PackingKind : uint8_t { concatenate_and_split, first_fit };

// Immutable; any thread may read.
class Packing {
 public:
  struct Spec {
    PackingKind kind = PackingKind::concatenate_and_split;
    bool cut_at_documents = false;  // a segment has tokens of one document; first_fit does so anyway
    int64_t seq_length = 0;
  };
  // Tokens [begin, begin + size) of a source, in rows [row, row + size) of a sample.
  struct Segment {
    int64_t begin = 0, size = 0, row = 0;
    bool ends_document = false;  // what follows its last token is of another document
    bool operator==(const Segment&) const = default;
  };
  // Borrows `source`. first_fit looks at the length of every document once, and keeps 16 bytes for a thousand of them.
  // Throws ConfigError where documents matter and the source does not tell them apart.
  Packing(const TokenSource& source, const Spec& spec);

  bool cuts_at_documents() const { return cuts_; }
  // Samples that training may take: with concatenate_and_split those whose S targets are all there.
  int64_t num_samples() const { return num_samples_; }
  // Samples in which every token but the first (of the source, or of its document) is a target once: num_samples(),
  // or one more that is not full.
  int64_t num_windows() const { return num_windows_; }
  // What sample i < num_windows() is made of, by rows; its rows behind the last segment are filled up.
  std::vector<Segment> segments(int64_t sample) const;
  // The same, cut at documents in any case; where they are not told apart, segments(sample).
  std::vector<Segment> documents_in(int64_t sample) const;
  // The document that has this token; 0 where they are not told apart.
  int64_t document_of(int64_t token) const;

 private:
  // Documents that are packed by themselves, so that a sample is found without packing all before it.
  struct Group {
    int64_t first_document, first_sample;
  };
  template <class Visit>
  int64_t pack(int64_t first, int64_t end, const Visit& visit) const;
  std::vector<Segment> cut(int64_t begin, int64_t end) const;
  std::vector<Segment> packed(int64_t sample) const;
  int64_t end_of_group(int64_t first) const;

  const TokenSource& source_;
  bool first_fit_, cuts_;
  int64_t seq_length_, num_samples_ = 0, num_windows_ = 0;
  std::vector<Group> groups_;  // of first_fit, and one behind the last
};

}  // namespace weft
