#include "isochron/view/page.h"

#include <random>
#include <string_view>

#include "isochron/core/trace/json.h"
#include "isochron/view/page_data.h"
#include "isochron/view/web_files.h"

namespace isochron::view {
namespace {

/// A fresh number that no log could know when it was written.
std::string make_nonce() {
  std::random_device device;
  std::string bytes;
  for (int i = 0; i < 16; ++i) {
    bytes += static_cast<char>(static_cast<unsigned char>(device()));
  }
  std::string nonce;
  for (const char byte : bytes) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    nonce += kDigits[static_cast<unsigned char>(byte) >> 4U];
    nonce += kDigits[static_cast<unsigned char>(byte) & 0xFU];
  }
  return nonce;
}

std::string script(std::string_view text, const std::string& nonce) {
  return "<script nonce=\"" + nonce + "\">" + std::string(text) + "</script>\n";
}

std::string style(std::string_view text, const std::string& nonce) {
  return "<style nonce=\"" + nonce + "\">" + std::string(text) + "</style>\n";
}

std::string security(const std::string& nonce, bool live) {
  return R"(<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'nonce-)" + nonce +
         "'; style-src 'nonce-" + nonce + "'; img-src data:; connect-src " + (live ? "'self'" : "'none'") +
         "; base-uri 'none'; form-action 'none'\">\n";
}

std::string escaped(std::string_view text) {
  std::string html;
  for (const char c : text) {
    switch (c) {
      case '<':
        html += "&lt;";
        break;
      case '&':
        html += "&amp;";
        break;
      default:
        html += c;
    }
  }
  return html;
}

}  // namespace

std::string page_json(const std::vector<NamedRun>& runs, const PageOptions& options) {
  JsonObject object;
  object.flag("live", options.live);
  object.raw("headline", script_safe(json_string(headline(runs))))
      .raw("runs", json_array(runs, [](const NamedRun& run) { return to_page_json(*run.view, run.name); }));
  return object.str();
}

std::string page(const std::vector<NamedRun>& runs, const PageOptions& options) {
  const std::string nonce = make_nonce();
  std::string html =
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n" +
      security(nonce, options.live) + "<title>Isochron: " + escaped(runs.front().name) +
      "</title>\n<link rel=\"icon\" href=\"data:,\">\n";
  html += "<!--\nuPlot " + std::string(kUplotLicence) + "\n-->\n";
  html += style(kUplotStyle, nonce) + style(kPageStyle, nonce) + "</head>\n" + std::string(kPageBody);
  html += R"(<script type="application/json" id="data" nonce=")" + nonce + "\">";
  html += page_json(runs, options);
  html += "</script>\n";
  html += script(kUplotScript, nonce);
  for (const std::string_view part : kPageScripts) {
    html += script(part, nonce);
  }
  html += "</html>\n";
  return html;
}

}  // namespace isochron::view
