#include "weft/pipeline/url.h"

#include <algorithm>
#include <vector>

#include "weft/base/ascii.h"

namespace weft {
namespace {

bool is_unreserved(char c) {
  return is_ascii_letter(c) || is_ascii_digit(c) || std::string_view("-._~").find(c) != std::string_view::npos;
}

// %41 becomes A, %c3 becomes %C3.
std::string with_plain_escapes(std::string_view text) {
  constexpr const char* kDigits = "0123456789ABCDEF";
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const int high = text[i] == '%' && i + 2 < text.size() ? hex_digit(text[i + 1]) : -1;
    const int low = high >= 0 ? hex_digit(text[i + 2]) : -1;
    if (low < 0) {
      out += text[i];
      continue;
    }
    const char c = char(high << 4 | low);
    if (is_unreserved(c))
      out += c;
    else
      ((out += '%') += kDigits[high]) += kDigits[low];
    i += 2;
  }
  return out;
}

std::string host_of(std::string_view authority) {
  std::string host = lower_ascii(authority.substr(authority.rfind('@') + 1));  // npos + 1 is 0
  for (const char* port : {":80", ":443", ":"})
    if (host.ends_with(port)) {
      host.resize(host.size() - std::string_view(port).size());
      break;
    }
  if (host.ends_with('.')) host.pop_back();
  return host.starts_with("www.") ? host.substr(4) : host;
}

std::string query_of(std::string_view query) {
  std::vector<std::string> parameters;
  while (!query.empty()) {
    const size_t end = std::min(query.find('&'), query.size());
    const std::string_view one = query.substr(0, end);
    query.remove_prefix(std::min(end + 1, query.size()));
    const std::string name = lower_ascii(one.substr(0, one.find('=')));
    const bool tells_of_visitor = name.starts_with("utm_") || name == "gclid" || name == "fbclid" || name == "msclkid";
    if (!one.empty() && !tells_of_visitor) parameters.push_back(with_plain_escapes(one));
  }
  std::stable_sort(parameters.begin(), parameters.end());
  std::string all;
  for (const std::string& p : parameters) (all += all.empty() ? '?' : '&') += p;
  return all;
}

}  // namespace

std::string normal_url(std::string_view url) {
  url = url.substr(0, url.find('#'));
  const size_t colon = url.find("://");
  const std::string scheme = colon == std::string_view::npos ? "" : lower_ascii(url.substr(0, colon));
  if (scheme != "http" && scheme != "https") return std::string(url);
  url.remove_prefix(colon + 3);
  const size_t authority_end = std::min(url.find_first_of("/?"), url.size());
  const std::string host = host_of(url.substr(0, authority_end));
  url.remove_prefix(authority_end);
  const size_t path_end = std::min(url.find('?'), url.size());
  std::string path = with_plain_escapes(url.substr(0, path_end));
  while (path.ends_with('/')) path.pop_back();
  return "http://" + host + path + query_of(url.substr(std::min(path_end + 1, url.size())));
}

bool is_url(std::string_view url) {
  const size_t colon = url.find("://");
  if (colon == std::string_view::npos || colon == 0) return false;
  const auto is_of_scheme = [](char c) {
    return is_ascii_letter(c) || is_ascii_digit(c) || std::string_view("+-.").find(c) != std::string_view::npos;
  };
  const std::string_view scheme = url.substr(0, colon), rest = url.substr(colon + 3);
  const std::string_view authority = rest.substr(0, rest.find_first_of("/?#"));
  return is_ascii_letter(scheme[0]) && std::all_of(scheme.begin(), scheme.end(), is_of_scheme) &&
         !host_of(authority).empty() && authority.find_first_of(" \t\r\n") == std::string_view::npos;
}

}  // namespace weft
