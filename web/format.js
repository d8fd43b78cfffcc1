// Numbers and colours as people read them.
"use strict";

const kUnknown = "–";

function isNumber(value) {
  return value !== null && value !== undefined && Number.isFinite(value);
}

// Formatters are costly to make.
const formatters = new Map();

function formatterFor(digits) {
  if (!formatters.has(digits)) {
    const options = {minimumFractionDigits: digits, maximumFractionDigits: digits};
    formatters.set(digits, new Intl.NumberFormat("en", options));
  }
  return formatters.get(digits);
}

function formatNumber(value, digits = 0) {
  if (!isNumber(value)) return kUnknown;
  if (Math.abs(value) >= 1e15) return value.toExponential(2);
  return formatterFor(digits).format(value);
}

function formatSeconds(value) {
  if (!isNumber(value)) return kUnknown;
  const size = Math.abs(value);
  if (size >= 1e7) return formatNumber(value / 86400) + " d";
  const split = (number) => `${Math.floor(number / 60)}:${String(Math.floor(number) % 60).padStart(2, "0")}`;
  if (size >= 100) return (value < 0 ? "-" : "") + (size < 3600 ? split(size) + " min" : split(size / 60) + " h");
  if (size >= 0.9995) return formatNumber(value, 2) + " s";  // no "1,000 ms"
  if (size >= 1e-3) return formatNumber(1e3 * value, size >= 0.1 ? 0 : 1) + " ms";
  return size === 0 ? "0 s" : formatNumber(1e6 * value, 0) + " µs";
}

// Percent, with as many digits as neighbouring ticks need to differ.
function formatPercentTicks(ticks) {
  const apart = ticks.length > 1 ? 100 * Math.abs(ticks[1] - ticks[0]) : 1;
  const digits = Math.min(4, Math.max(0, Math.ceil(-Math.log10(apart) - 1e-9)));
  return ticks.map((tick) => formatNumber(100 * tick, digits) + " %");
}

function formatTick(value) {
  return Math.abs(value) >= 1e6 || (value !== 0 && Math.abs(value) < 1e-3)
    ? value.toExponential(1)
    : value.toLocaleString("en", {maximumFractionDigits: 6});
}

const darkness = window.matchMedia("(prefers-color-scheme: dark)");

function themeColour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// Okabe and Ito's colours, which the colour-blind tell apart, a little darker or lighter where the ground asks for it.
const kLightColours = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b88600", "#4aa8dc", "#7a5195", "#222222"];
const kDarkColours = ["#56b4e9", "#ff8a3d", "#2bcb9b", "#e99ac6", "#f0e442", "#8ab6ff", "#c9a0e8", "#eeeeee"];
// Cividis, for so many workers that only the order can be seen.
const kCividis = [[0, 34, 78], [59, 73, 108], [112, 113, 115], [165, 156, 116], [225, 204, 85], [254, 232, 56]];

function cividis(share) {
  const [low, high] = darkness.matches ? [0.35, 1] : [0, 0.8];
  const place = (low + (high - low) * share) * (kCividis.length - 1);
  const before = Math.min(Math.floor(place), kCividis.length - 2);
  const rest = place - before;
  const mixed = kCividis[before].map((value, i) => Math.round(value + rest * (kCividis[before + 1][i] - value)));
  return `rgb(${mixed.join(",")})`;
}

// The colour of one of `count`.
function colourOf(index, count) {
  const colours = darkness.matches ? kDarkColours : kLightColours;
  return count <= colours.length ? colours[index % colours.length] : cividis(index / (count - 1));
}

// Lines differ in more than colour.
function dashOf(index, count) {
  return count <= 8 ? [[], [8, 3], [3, 3], [10, 3, 2, 3]][index % 4] : [];
}
