#include "weft/apps/islands.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iostream>

#include "weft/apps/backends.h"
#include "weft/apps/commands.h"
#include "weft/apps/launcher.h"
#include "weft/apps/stop_signal.h"
#include "weft/base/descriptor.h"
#include "weft/islands/island_hub.h"
#include "weft/plan/run_plan.h"
#include "weft/train/joined_island.h"

namespace weft {
namespace {

constexpr const char* kSecretVariable = "WEFT_ISLANDS_SECRET";
constexpr const char* kHowToMake = "as `(umask 077; openssl rand -hex 32 >islands.secret)` makes one";

std::string without_spaces(std::string text) {
  constexpr const char* kSpaces = " \t\r\n";
  text.erase(text.find_last_not_of(kSpaces) + 1);
  text.erase(0, std::min(text.size(), text.find_first_not_of(kSpaces)));
  return text;
}

// Looks at the file that it has opened, not at its name.
std::string secret_in(const std::string& file) {
  const auto refuse = [&](const std::string& why) {
    throw ConfigError(fmt::format("islands.secret_file = \"{}\": {}", file, why));
  };
  const Descriptor fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info = {};
  if (fd < 0 || ::fstat(fd, &info) != 0) refuse(fmt::format("{}; {}", std::strerror(errno), kHowToMake));
  if (!S_ISREG(info.st_mode)) refuse("is no regular file");
  if ((info.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    refuse(fmt::format("others than its owner may read or write it; chmod 600 {}", file));
  if (info.st_uid != ::geteuid()) refuse("belongs to somebody else");
  char text[4096];
  const ssize_t n = ::read(fd, text, sizeof text);
  if (n < 0) refuse(std::strerror(errno));
  if (n == ssize_t(sizeof text)) refuse("is longer than a secret");
  return std::string(text, size_t(n));
}

}  // namespace

std::string secret_of_islands(const Islands& islands) {
  const bool is_in_file = !islands.secret_file.empty();
  const std::string secret =
      without_spaces(is_in_file ? secret_in(islands.secret_file) : environment(kSecretVariable).value_or(""));
  if (secret.empty() && !is_in_file)
    throw ConfigError(
        fmt::format("islands need a secret, by which they and their hub know each other: "
                    "islands.secret_file = \"islands.secret\", {}; or {} in the environment",
                    kHowToMake, kSecretVariable));
  if (secret.size() < kLeastSecretBytes)
    throw ConfigError(fmt::format("{}: the secret has {} bytes, at least {} are needed, {}",
                                  is_in_file ? islands.secret_file : kSecretVariable, secret.size(), kLeastSecretBytes,
                                  kHowToMake));
  keyed_hash(bytes_of_text(secret), {});  // NotBuilt, where it is not
  return secret;
}

int run_islands(const HubOptions& o) {
  if (o.recipe.empty())
    throw ConfigError("a recipe is missing, as in `weft islands recipe.toml`; `weft islands --help` says more");
  const Recipe recipe = read_recipe(o.recipe, o.overrides);
  const Islands islands = parse_islands_file(o.recipe, o.overrides);
  if (!islands.are_joined())
    throw ConfigError(
        fmt::format("{}: islands.count is 0: there is nothing to be the hub of; say how many islands there "
                    "are, in [islands] of the recipe",
                    o.recipe));
  check_supported(recipe);
  check_islands_supported(islands, recipe);
  const OuterLayout layout(prepare_run(recipe, 0).model, islands.fragments);
  IslandHub hub({.address = islands.address,
                 .secret = secret_of_islands(islands),
                 .count = islands.count,
                 .settings = shared_settings(islands, recipe),
                 .model = model_text(layout),
                 .outer = outer_spec_of(islands),
                 .sizes = layout.sizes(),
                 .timeout_s = islands.timeout_seconds,
                 .tell = [](const std::string& text) { std::cerr << text << std::endl; }});
  std::cerr << fmt::format("the hub of {} islands listens at {}\n", islands.count, islands.address) << std::flush;
  listen_to_signals("\nthe hub ends; islands train on alone until it is back\n");
  if (!hub.serve(stop_requested())) return status_of_stop();
  std::cerr << fmt::format("all {} islands have done their steps, in {} rounds\n", islands.count, hub.rounds());
  return kExitOk;
}

}  // namespace weft
