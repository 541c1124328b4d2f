// Devices and clusters that nobody need have.
#include <gtest/gtest.h>

#include "support.h"
#include "weft/base/error.h"
#include "weft/forecast/cluster.h"
#include "weft/forecast/profile.h"

namespace weft {
namespace {

using testing::error_of;

std::string refusal(const std::string& toml) {
  return error_of<ConfigError>([&] { parse_cluster(toml, "c.toml"); });
}

TEST(Cluster, EveryPresetIsWholeAndSaysFromWhere) {
  EXPECT_GE(device_names().size(), 22u);
  for (const std::string& name : device_names()) {
    const ClusterSpec c = preset_of(name);
    EXPECT_EQ(c.device.name, name);
    EXPECT_GE(c.device.peak.bits16, c.device.products.bits16) << name;
    EXPECT_GT(c.device.products.bits16, 0.4 * c.device.peak.bits16) << name;
    EXPECT_GE(c.device.peak.fp8, c.device.products.fp8) << name;
    EXPECT_GT(c.device.memory_bytes, 8e9) << name;
    EXPECT_GT(c.device.memory_bytes_per_s, 3e11) << name;
    EXPECT_GE(c.scale_up.bytes_per_s, c.scale_out.bytes_per_s) << name;
    EXPECT_EQ(c.domain % c.devices_per_node, 0) << name;
    EXPECT_FALSE(c.device.source.empty()) << name;
    EXPECT_EQ(c.price_per_device_hour > 0, !c.price_source.empty()) << name;
  }
}

TEST(Cluster, NamesOfPublishedRunsArePresets) {
  EXPECT_EQ(preset_of("H100-80GB").device.name, "H100-SXM");
  EXPECT_EQ(preset_of("A100-40GB").device.name, "A100-SXM-40GB");
  EXPECT_EQ(preset_of("NVIDIA H100 80GB HBM3").device.name, "H100-SXM");
  EXPECT_EQ(preset_of("NVIDIA A100-SXM4-80GB").device.name, "A100-SXM-80GB");
  EXPECT_EQ(preset_of("h100-pcie-80gb").device.name, "H100-PCIe");
  EXPECT_EQ(preset_of("MI300X-192GB").device.name, "MI300X");
  EXPECT_EQ(preset_of("RTX 4090").device.name, "RTX4090");
  EXPECT_EQ(preset_of("GB200-NVL72").device.name, "GB200");
  for (const char* other : {"A100-PCIE-40GB", "A100-64GB", "H100-NVL-94GB", "H800", ""})
    EXPECT_THROW(preset_of(other), ConfigError) << other;
  EXPECT_NE(error_of<ConfigError>([] { preset_of("H100-SMX"); }).find("the nearest is \"H100-SXM\""),
            std::string::npos);
  EXPECT_NE(error_of<ConfigError>([] { preset_of("abacus"); }).find("they are V100-SXM2, "), std::string::npos);
}

TEST(Cluster, AFileSaysWhatDiffersFromAPreset) {
  const ClusterSpec c = parse_cluster(
      "preset = \"H100-SXM\"\nnodes = 16\n[scale_out]\ngb_s = 25\n[price]\nper_device_hour = 1.5\nsource = \"mine\"\n",
      "c.toml");
  EXPECT_EQ(c.num_devices, 128);
  EXPECT_EQ(c.scale_out.bytes_per_s, 25e9);
  EXPECT_EQ(c.scale_up.bytes_per_s, preset_of("H100-SXM").scale_up.bytes_per_s);
  EXPECT_EQ(c.price_per_device_hour, 1.5);
}

TEST(Cluster, AFileThatWasPrintedIsTheSame) {
  ClusterSpec c = preset_of("GB200");
  c.num_devices = 72;
  const std::string text = to_toml(c);
  EXPECT_EQ(to_toml(parse_cluster(text, "c.toml")), text);
}

TEST(Cluster, WhatContradictsItselfIsRefused) {
  EXPECT_NE(refusal("preset = \"H100-SXM\"\n[scale_out]\ngb_s = 1000\n").find("scale_out.gb_s = 1000 is above"),
            std::string::npos);
  EXPECT_NE(refusal("preset = \"H100-SXM\"\n[device]\npeak_bf16_tflops = 100\n").find("is above device.peak"),
            std::string::npos);
  EXPECT_NE(refusal("preset = \"H100-SXM\"\n[price]\nper_device_hour = 0\n").find("c.toml:3:"), std::string::npos);
  EXPECT_NE(refusal("preset = \"H100-SXM\"\ndomain = 12\n").find("must be a multiple of devices_per_node = 8"),
            std::string::npos);
  EXPECT_NE(refusal("nodes = 2\n").find("device.peak_bf16_tflops is missing"), std::string::npos);
  EXPECT_NE(refusal("preset = \"H100-SXM\"\n[device]\nmemory_gbs = 3\n").find("the nearest is memory_gb"),
            std::string::npos);
  EXPECT_NE(refusal("preset = 7\n").find("must be text"), std::string::npos);
  EXPECT_NE(error_of<FileError>([] { read_cluster("none.toml"); }).find("none.toml: cannot be read"),
            std::string::npos);
}

TEST(Profile, TheBuiltInOnesAreThoseOfTheirPrograms) {
  const Profiles& all = Profiles::built_in();
  EXPECT_EQ(all.of("NeMo/Megatron-Core", false).name, "Megatron-Core");
  EXPECT_TRUE(all.of("NeMo/Megatron-Core", true).experts);
  EXPECT_EQ(all.of("something else", false).name, "any program");
  EXPECT_TRUE(all.of("something else", true).experts);
  EXPECT_EQ(all.of("weft", false).name, "weft");
  EXPECT_EQ(Profiles::parse(all.to_toml(), "again").to_toml(), all.to_toml());
}

TEST(Profile, NumbersOutOfRangeAreRefusedByName) {
  const auto refused = [](const std::string& toml) {
    return error_of<ConfigError>([&] { Profiles::parse(toml, "p.toml"); });
  };
  EXPECT_NE(refused("[[program]]\nname = \"x\"\nproducts = 7\n").find("p.toml:3:"), std::string::npos);
  EXPECT_NE(refused("[[program]]\nname = \"x\"\nproduct = 1\n").find("the nearest is products"), std::string::npos);
  EXPECT_NE(refused("[[program]]\nproducts = 0.5\n").find("name is missing"), std::string::npos);
  EXPECT_NE(refused("").find("has no [[program]]"), std::string::npos);
}

TEST(Profile, ALaterReleaseOfAProgramThatGainsIsFaster) {
  ProgramProfile p;
  p.gain = 0.5;
  EXPECT_GT(at_release(p, 2027).grouped, p.grouped);
  EXPECT_LT(at_release(p, 2025).grouped, p.grouped);
  EXPECT_EQ(at_release(p, 0).grouped, p.grouped);  // not known
}

}  // namespace
}  // namespace weft
