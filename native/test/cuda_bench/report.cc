#include <cstdio>

#include "cuda_bench.h"

namespace odmoe::cuda_bench {
namespace {

std::string percent(const std::optional<double>& share) {
  if (!share) return "";
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%", 100 * *share);
  return text;
}

// Figures of tiny sizes cannot be judged by an aim.
bool has_verdict(const Bench& bench, const Figure& figure) { return !bench.smoke() && figure.aim && figure.copy_share; }

std::string verdict(const Bench& bench, const Figure& figure) {
  if (!has_verdict(bench, figure)) return "";
  char text[48];
  std::snprintf(text, sizeof text, "aim %.0f %%: %s", 100 * *figure.aim, *figure.copy_share >= *figure.aim ? "met" : "NOT met");
  return text;
}

std::string json_text(const std::string& text) {
  std::string quoted = "\"";
  for (const char letter : text) {
    if (letter == '"' || letter == '\\') quoted += '\\';
    if (static_cast<unsigned char>(letter) >= 0x20) quoted += letter;
  }
  return quoted + "\"";
}

void print_share(const char* name, const std::optional<double>& share) {
  if (share) std::printf(", \"%s\": %.4f", name, *share);
}

}  // namespace

void print_table(const Bench& bench) {
  const DeviceInfo info = bench.backend()->info();
  std::printf("%s, %s, %d multiprocessors%s\n", info.name.c_str(), info.instruction_set.c_str(), info.threads,
              bench.smoke() ? "; tiny sizes: the figures say nothing" : "");
  std::printf("%-9s %-66s %10s %-8s %9s %9s\n", "", "", "", "", "of copy", "of FP32");
  for (const Figure& figure : bench.figures()) {
    std::printf("%-9s %-66s %10.1f %-8s %9s %9s  %s\n", figure.group.c_str(), figure.what.c_str(), figure.value,
                figure.unit.c_str(), percent(figure.copy_share).c_str(), percent(figure.peak_share).c_str(),
                verdict(bench, figure).c_str());
  }
}

void print_json(const Bench& bench) {
  const DeviceInfo info = bench.backend()->info();
  std::printf("{\"device\": %s, \"architecture\": %s, \"multiprocessors\": %d, \"smoke\": %s, \"figures\": [",
              json_text(info.name).c_str(), json_text(info.instruction_set).c_str(), info.threads,
              bench.smoke() ? "true" : "false");
  const char* separator = "\n  ";
  for (const Figure& figure : bench.figures()) {
    std::printf("%s{\"group\": %s, \"what\": %s, \"value\": %.6g, \"unit\": %s", separator, json_text(figure.group).c_str(),
                json_text(figure.what).c_str(), figure.value, json_text(figure.unit).c_str());
    print_share("copy_share", figure.copy_share);
    print_share("peak_share", figure.peak_share);
    print_share("aim", figure.aim);
    if (has_verdict(bench, figure)) std::printf(", \"met\": %s", *figure.copy_share >= *figure.aim ? "true" : "false");
    std::printf("}");
    separator = ",\n  ";
  }
  std::printf("\n]}\n");
}

}  // namespace odmoe::cuda_bench
