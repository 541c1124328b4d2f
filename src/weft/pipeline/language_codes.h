// From other standards' language codes to the detector's own.
#pragma once
#include <string>
#include <string_view>

namespace weft {

// The detector's code for one of ISO 639-1, -2 or -3, of BCP 47 or of FLORES: "iw" for "he", "heb" and "heb_Hebr", "en"
// for "en-US", "zh-Hant" for "zh-TW". What may be one already is handed back without its script and region. In any
// case.
std::string detector_code(std::string_view code);

}  // namespace weft
