// Charts over time, drawn by uPlot on a canvas.
import { h, setText } from './dom.js';
import { t } from './text.js';

const style = getComputedStyle(document.documentElement);
export const color = (name) => style.getPropertyValue(`--${name}`).trim();

const all = new Set();

// redraw draws every chart again, in the colours of the theme.
export function redraw() {
  for (const chart of all) chart.make();
}

// timeChart is a chart of series over time.
//
//   label    what it shows, for screen readers
//   series   [{name, color (a custom property without --), fill, hatch, line}], drawn in this order;
//            hatch are the directions of lines in the fill, in degrees, in the colour line
//   format   makes the text of a value, and tick that of a value at the axis
//   stacked  each series is drawn on top of those that follow it
//   least    the top of the scale is at least this
//   seconds  how long a time the chart shows, until the last value; 0: all values
//
// It returns {node, set(times, values), destroy()}; times are in seconds and values has one
// array for each series.
export function timeChart({ label, series, format, tick, stacked = false, least = 1, seconds = 0, height = 180 }) {
  const readout = h('div', { class: 'readout num' });
  const box = h('div', { class: 'plot', role: 'img', 'aria-label': label });
  const node = h('div', { class: 'chart' }, box, readout);
  let plot = null;
  let times = [];
  let values = series.map(() => []);

  function layers() {
    if (!stacked) return values;
    const result = values.map((v) => v.slice());
    for (let s = result.length - 2; s >= 0; s--) {
      for (let i = 0; i < times.length; i++) result[s][i] += result[s + 1][i];
    }
    return result;
  }

  function make() {
    plot?.destroy();
    const axis = { stroke: color('muted'), font: '11px system-ui, sans-serif', ticks: { show: false } };
    plot = new window.uPlot({
      width: Math.max(100, box.clientWidth || 100),
      height,
      legend: { show: false },
      padding: [8, 0, 0, 0],
      cursor: { drag: { x: false, y: false }, points: { show: false }, y: false },
      scales: {
        x: { range: (_, low, high) => (seconds ? [(high || Date.now() / 1000) - seconds, high || Date.now() / 1000] : [low, high]) },
        y: { range: (_, low, high) => [0, Math.max(least, high * 1.08)] },
      },
      axes: [
        { ...axis, size: 24, space: 70, grid: { show: false }, values: (_, ticks) => ticks.map(clock) },
        { ...axis, size: 52, space: 34, gap: 6, grid: { stroke: color('grid'), width: 1 }, values: (_, ticks) => ticks.map(tick) },
      ],
      series: [{}, ...series.map((s) => ({
        stroke: s.color ? color(s.color) : undefined, width: s.color ? 1.5 : 0, fill: s.hatch ? hatched(s) : s.fill ? color(s.fill) : undefined, points: { show: false },
      }))],
      hooks: { setCursor: [read] },
    }, [times, ...layers()], box);
  }

  function read() {
    const i = plot?.cursor?.idx;
    if (i === null || i === undefined || times[i] === undefined) {
      setText(readout, '');
      return;
    }
    const parts = series.map((s, k) => (values[k][i] ? `${s.name} ${format(values[k][i])}` : '')).filter(Boolean);
    setText(readout, [clock(times[i]), ...parts].join('   '));
  }

  const size = new ResizeObserver(() => {
    if (!plot) make();
    else if (box.clientWidth && Math.abs(plot.width - box.clientWidth) > 1) plot.setSize({ width: box.clientWidth, height });
  });
  size.observe(box);
  const chart = {
    node,
    make,
    set(newTimes, newValues) {
      times = newTimes;
      values = newValues;
      plot?.setData([times, ...layers()]);
      const now = series.map((s, k) => `${s.name} ${format(values[k].at(-1) ?? 0)}`).join(', ');
      box.setAttribute('aria-label', t('chart.now', { label, now }));
    },
    destroy() {
      size.disconnect();
      plot?.destroy();
      all.delete(chart);
    },
  };
  all.add(chart);
  return chart;
}

// hatched is the fill of a series with lines in it, so that it differs by more than its colour.
function hatched({ fill, line, hatch }) {
  const size = 8 * devicePixelRatio;
  const tile = h('canvas', { width: size, height: size });
  const pen = tile.getContext('2d');
  pen.fillStyle = color(fill);
  pen.fillRect(0, 0, size, size);
  pen.strokeStyle = color(line);
  pen.lineWidth = 1.5 * devicePixelRatio;
  for (const degrees of hatch) {
    // A line through the middle, as long as it takes to go on in the next tile.
    const [x, y] = { 0: [size, 0], 90: [0, size], 45: [size, size], '-45': [size, -size] }[degrees];
    for (const shift of degrees % 90 ? [-size, 0, size] : [0]) {
      pen.beginPath();
      pen.moveTo((size - x) / 2 + shift, (size + y) / 2);
      pen.lineTo((size + x) / 2 + shift, (size - y) / 2);
      pen.stroke();
    }
  }
  return pen.createPattern(tile, 'repeat');
}

function clock(seconds) {
  const d = new Date(seconds * 1000);
  const two = (n) => String(n).padStart(2, '0');
  const minutes = `${two(d.getHours())}:${two(d.getMinutes())}`;
  return d.getSeconds() ? `${minutes}:${two(d.getSeconds())}` : minutes;
}
