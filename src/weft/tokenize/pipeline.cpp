#include "weft/tokenize/pipeline.h"

#include <algorithm>

#include "weft/base/parallel.h"
#include "weft/tokenize/byte_alphabet.h"

namespace weft {
namespace {

std::string normalized(const std::vector<Normalizer>& steps, std::string text, PatternSpace& space) {
  for (const auto& step : steps) text = step(std::move(text), space);
  return text;
}

std::vector<AddedToken> chosen(const std::vector<AddedToken>& all, bool of_normal) {
  std::vector<AddedToken> some;
  std::copy_if(all.begin(), all.end(), std::back_inserter(some),
               [=](const AddedToken& t) { return t.normalized == of_normal; });
  return some;
}

// As they look in the text in which they are found.
std::vector<AddedToken> normalized_tokens(const PipelineTokenizer::Parts& parts) {
  auto tokens = chosen(parts.added, true);
  PatternSpace space;
  for (auto& t : tokens) t.content = normalized(parts.normalizers, t.content, space);
  return tokens;
}

}  // namespace

PipelineTokenizer::PipelineTokenizer(Parts parts)
    : parts_(std::move(parts)),
      vocab_size_(parts_.model->vocabulary().size()),
      in_text_(chosen(parts_.added, false)),
      in_normal_(normalized_tokens(parts_)),
      by_id_(parts_.added) {
  std::stable_sort(by_id_.begin(), by_id_.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  if (!by_id_.empty()) vocab_size_ = std::max<int64_t>(vocab_size_, by_id_.back().id + 1);
  const bool harmless = parts_.normalizers.empty() || parts_.only_nfc;
  may_cut_ = parts_.pre_tokenizers.splitter && harmless && !in_text_.may_cross(Splitter::always_splits) &&
             !in_normal_.may_cross(Splitter::always_splits);
}

void PipelineTokenizer::encode(std::string_view text, std::vector<int32_t>& ids, SpecialText special) const {
  const auto space = spaces_.borrow();
  encode_whole(text, {special, 1, ids, *space});
}

void PipelineTokenizer::encode(std::string_view text, std::vector<int32_t>& ids, SpecialText special,
                               int num_threads) const {
  if (may_cut_) return Tokenizer::encode(text, ids, special, num_threads);
  const auto space = spaces_.borrow();
  encode_whole(text, {special, num_threads, ids, *space});
}

void PipelineTokenizer::encode_whole(std::string_view text, const Call& call) const {
  std::string copy;
  text = well_formed(text, copy);
  if (const size_t about = call.ids.size() + text.size() / 4; about > call.ids.capacity())
    call.ids.reserve(std::max(about, 2 * call.ids.capacity()));
  const char* begin = text.data();
  if (in_text_.empty()) {
    if (!text.empty()) encode_part(text, true, call);
    return;
  }
  in_text_.split(text, call.special == SpecialText::kParsed,
                 {.text = [&](std::string_view part) { encode_part(part, part.data() == begin, call); },
                  .token = [&](const AddedToken& t) { call.ids.push_back(t.id); }});
}

void PipelineTokenizer::encode_part(std::string_view text, bool first, const Call& call) const {
  std::string copy;
  if (!parts_.normalizers.empty() && !(parts_.only_nfc && is_surely_nfc(*parts_.table, text))) {
    copy = normalized(parts_.normalizers, std::string(text), call.space.pieces.patterns);
    text = copy;
  }
  if (in_normal_.empty()) {
    if (!text.empty()) encode_normal(text, first, call);
    return;
  }
  const char* begin = text.data();
  in_normal_.split(text, call.special == SpecialText::kParsed,
                   {.text = [&](std::string_view part) { encode_normal(part, first && part.data() == begin, call); },
                    .token = [&](const AddedToken& t) { call.ids.push_back(t.id); }});
}

void PipelineTokenizer::encode_normal(std::string_view text, bool first, const Call& call) const {
  if (const auto& splitter = parts_.pre_tokenizers.splitter; splitter && parts_.model->of_bytes()) {
    for (size_t at = 0; at < text.size();) {
      const size_t end = splitter->end_of_piece(text, at);
      parts_.model->encode(text.substr(at, end - at), call.ids, call.space.model);
      at = end;
    }
    return;
  }
  const TextPiece whole{text, first};
  if (call.num_threads == 1 || parts_.pre_tokenizers.steps.empty()) return finish(0, {&whole, 1}, call.ids, call.space);
  Pieces pieces;
  pieces.list = {whole};
  parts_.pre_tokenizers.steps[0](pieces);
  share_out(pieces.list, call);
}

void PipelineTokenizer::share_out(std::span<const TextPiece> pieces, const Call& call) const {
  constexpr size_t kPart = 1 << 17;  // bytes of text that a thread takes at once
  std::vector<size_t> ends;
  size_t bytes = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    bytes += pieces[i].text.size();
    if (bytes < kPart && i + 1 < pieces.size()) continue;
    ends.push_back(i + 1);
    bytes = 0;
  }
  std::vector<std::vector<int32_t>> parts(ends.size());
  parallel_for(int64_t(ends.size()), call.num_threads, 1, [&](int64_t begin, int64_t end) {
    const auto space = spaces_.borrow();
    for (auto i = size_t(begin); i < size_t(end); ++i) {
      const size_t from = i == 0 ? 0 : ends[i - 1];
      finish(1, pieces.subspan(from, ends[i] - from), parts[i], *space);
    }
  });
  for (const auto& part : parts) call.ids.insert(call.ids.end(), part.begin(), part.end());
}

void PipelineTokenizer::finish(size_t step, std::span<const TextPiece> from, std::vector<int32_t>& ids,
                               Space& space) const {
  Pieces& pieces = space.pieces;
  struct AtEnd {  // also where a regular expression gives up
    Pieces& pieces;
    ~AtEnd() { pieces.clear(); }
  };
  const AtEnd clears{pieces};
  pieces.list.assign(from.begin(), from.end());
  const auto& steps = parts_.pre_tokenizers.steps;
  for (; step < steps.size(); ++step) steps[step](pieces);
  for (const TextPiece& piece : pieces.list)
    if (!piece.text.empty()) parts_.model->encode(piece.text, ids, space.model);
}

size_t PipelineTokenizer::cut_between(std::string_view text, size_t from, size_t to) const {
  if (!may_cut_ || text.empty()) return 0;
  for (size_t at = std::min(to, text.size() - 1); at > from; --at)
    if (Splitter::always_splits(text[at - 1], text[at])) return at;
  return 0;
}

std::string PipelineTokenizer::decode(std::span<const int32_t> ids, Specials specials) const {
  std::vector<std::string> tokens;
  std::string bytes;
  for (int32_t id : ids) {
    const AddedToken* a = added(id);
    if (a != nullptr && a->special && specials == Specials::kHidden) continue;
    if (a == nullptr && !parts_.model->vocabulary().has(id)) continue;
    if (parts_.decoders.only_bytes && parts_.model->of_bytes() && a == nullptr)
      bytes += parts_.model->vocabulary().token(id);
    else if (parts_.decoders.only_bytes && parts_.model->of_bytes())
      bytes += a->content;
    else
      tokens.push_back(token_text(id));
  }
  if (!bytes.empty()) return bytes;
  for (const auto& step : parts_.decoders.steps) tokens = step(std::move(tokens));
  for (size_t i = 0; i < tokens.size(); ++i)
    bytes += (parts_.decoders.joined_by_spaces && i > 0 ? " " : "") + tokens[i];
  return bytes;
}

std::string PipelineTokenizer::token_text(int32_t id) const {
  if (const AddedToken* a = added(id)) return a->content;
  const std::string_view token = parts_.model->vocabulary().token(id);
  return parts_.model->of_bytes() ? ByteAlphabet().to_text(token) : std::string(token);
}

const AddedToken* PipelineTokenizer::added(int32_t id) const {
  const auto at = std::lower_bound(by_id_.begin(), by_id_.end(), id, [](const auto& t, int32_t i) { return t.id < i; });
  return at != by_id_.end() && at->id == id ? &*at : nullptr;
}

}  // namespace weft
