#include "weft/pipeline/url.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(Url, OfTheSamePageAreEqual) {
  for (const char* url : {"http://example.org/a%20b/c?x=1&y=2", "https://www.Example.ORG:443/a%20b/c/?y=2&x=1#part",
                          "HTTP://example.org.:80/%61%20b/c?utm_source=z&x=1&y=2&fbclid=Q",
                          "https://user@example.org/a%20b/c?&x=1&%79=2"})
    EXPECT_EQ(normal_url(url), "http://example.org/a%20b/c?x=1&y=2") << url;
  EXPECT_EQ(normal_url("https://example.org"), normal_url("http://www.example.org/?utm_medium=x"));
  EXPECT_EQ(normal_url("http://example.org/%c3%a9"), "http://example.org/%C3%A9");
}

TEST(Url, OfOtherPagesStayDifferent) {
  const char* urls[] = {"http://example.org/a",      "http://example.org/A", "http://example.org/a/b",
                        "http://example.org:8080/a", "http://example.com/a", "http://example.org/a?b",
                        "http://example.org/a%2Fb",  "ftp://example.org/a"};
  for (const char* a : urls)
    for (const char* b : urls) EXPECT_EQ(normal_url(a) == normal_url(b), a == b) << a << " " << b;
}

TEST(Url, HaveASchemeAndAHost) {
  for (const char* url : {"http://x", "HTTPS://example.org/a?b#c", "ftp://h:21/", "s3://bucket/key", "http://[::1]/"})
    EXPECT_TRUE(is_url(url)) << url;
  for (const char* text : {"", "N/A", "-", "None", "unknown", "example.org/a", "http:/x", "http://", "http:///a",
                           "://x", "http://?q", "1http://x", "see http://x", "http://no page", "urn:isbn:1"})
    EXPECT_FALSE(is_url(text)) << text;
}

TEST(Url, ThatAreBrokenStayWhatTheyAre) {
  EXPECT_EQ(normal_url(""), "");
  EXPECT_EQ(normal_url("no url"), "no url");
  EXPECT_EQ(normal_url("http://"), "http://");
  EXPECT_EQ(normal_url("http://?"), "http://");
  EXPECT_EQ(normal_url("http://x/%"), "http://x/%");
  EXPECT_EQ(normal_url("http://x/%4"), "http://x/%4");
  EXPECT_EQ(normal_url("http://x/%zz%41"), "http://x/%zzA");
  EXPECT_EQ(normal_url("urn:isbn:1#x"), "urn:isbn:1");
}

}  // namespace
}  // namespace weft
