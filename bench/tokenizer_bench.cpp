// MB/s of a tokenizer on a file: tokenizer_bench TOKENIZER FILE [THREADS [lines]]. The file is one text, or with
// `lines` each of its lines is a document, as for a pipeline. The first pass has seen no text before; the best one of
// six has. A core's MB/s are by its own time, those of all threads by the clock. The hash is of the ids: equal if they
// are.
#include <fmt/format.h>
#include <sys/resource.h>
#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>

#include "weft/base/error.h"
#include "weft/base/mapped_file.h"
#include "weft/base/parallel.h"
#include "weft/tokenize/tokenizer.h"

namespace {

using Ids = std::vector<int32_t>;

// The seconds of all threads together, so that a machine that does other things too gives the same figures.
double cpu_seconds_of(const auto& f) {
  const std::clock_t begin = std::clock();
  f();
  return double(std::clock() - begin) / CLOCKS_PER_SEC;
}
double seconds_of(const auto& f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

void encode_lines(const weft::Tokenizer& tokenizer, const std::vector<std::string_view>& lines, int threads, Ids& ids) {
  std::vector<Ids> parts(size_t(std::max(threads, 1)));
  weft::parallel_for(int64_t(parts.size()), threads, 1, [&](int64_t begin, int64_t end) {
    for (auto part = size_t(begin); part < size_t(end); ++part)
      for (size_t i = lines.size() * part / parts.size(); i < lines.size() * (part + 1) / parts.size(); ++i)
        tokenizer.encode(lines[i], parts[part]);
  });
  for (const Ids& part : parts) ids.insert(ids.end(), part.begin(), part.end());
}

double peak_mb() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  return double(use.ru_maxrss) * 1024 / 1e6;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 3) return fmt::print("tokenizer_bench TOKENIZER FILE [THREADS [lines]]\n"), 2;
  const int threads = argc > 3 ? std::atoi(argv[3]) : 1;
  const bool by_line = argc > 4 && std::string_view(argv[4]) == "lines";
  std::unique_ptr<weft::Tokenizer> tokenizer;
  const double open = seconds_of([&] { tokenizer = weft::read_tokenizer(argv[1]); });
  const weft::MappedFile file(argv[2]);
  const auto lines = by_line ? lines_of(file.text()) : std::vector<std::string_view>();
  const double mb = double(file.text().size()) / 1e6, before = peak_mb();
  double first = 0, best = 1e9, wall = 1e9;
  size_t ids = 0;
  uint64_t hash = 0;
  for (int pass = 0; pass < 6; ++pass) {
    Ids out;
    double cpu = 0;
    const double s = seconds_of([&] {
      cpu = cpu_seconds_of([&] {
        if (by_line)
          encode_lines(*tokenizer, lines, threads, out);
        else
          tokenizer->encode(file.text(), out, weft::SpecialText::kText, threads);
      });
    });
    ids = out.size();
    hash = XXH64(out.data(), out.size() * sizeof out[0], 0);
    if (pass == 0) first = cpu;
    best = std::min(best, cpu);
    wall = std::min(wall, s);
    if (cpu > 20) break;
  }
  fmt::print(
      "{:.1f} MB, {} ids, hash {:016x}; opened in {:.2f} s; MB/s a core: first pass {:.1f}, best {:.1f}; {} threads: "
      "{:.1f}; {:.0f} MB of memory, {:.0f} before\n",
      mb, ids, hash, open, mb / first, mb / best, threads, mb / wall, peak_mb(), before);
  return 0;
} catch (const weft::Error& e) {
  fmt::print(stderr, "tokenizer_bench: {}\n", e.what());
  return 1;
}
