"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { bins, cells, layers, facts } = data;
  const root = document.documentElement;
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const told = (id, text) => { document.getElementById(id).textContent = text; };
  const time = (ns) => ns === null ? "not recorded" : ns >= 1e6 ? (ns / 1e6).toFixed(3) + " ms" : (ns / 1e3).toFixed(3) + " µs";
  const relative = (left, right) => left > 0 && right !== null ? (right - left) / left : null;
  const percent = (r) => r === null ? "no difference known" : (r >= 0 ? "+" : "−") + Math.abs(100 * r).toFixed(3) + "%";
  const name = (i) => bins.first[i] === bins.last[i] ? "iteration " + bins.first[i] : "iterations " + bins.first[i] + " to " + bins.last[i];
  const colour = (variable) => getComputedStyle(root).getPropertyValue(variable).trim();
  const make = (tag, attributes, parent) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    parent.appendChild(made);
    return made;
  };

  const mode = document.getElementById("mode");
  const modes = facts === null ? [] : [...new Set(facts.mode.filter((m) => m !== null))].sort();
  for (const one of modes) mode.add(new Option(one, one));
  mode.disabled = modes.length === 0;
  const shown = () => bins.first.map((_, i) => i).filter((i) => mode.value === "" || facts.mode[i] === mode.value);

  let chartAt = 0;
  function chart() {
    const box = document.getElementById("chart");
    box.replaceChildren();
    const at = shown();
    const [W, H, low, L, R] = [1000, 300, 215, 70, 12];
    const svg = make("svg", { viewBox: `0 0 ${W} ${H}` }, box);
    const top = Math.max(1, ...at.flatMap((i) => [bins.left_ns[i] ?? 0, bins.right_ns[i] ?? 0]));
    const rel = at.map((i) => relative(bins.left_ns[i], bins.right_ns[i]));
    const reach = Math.max(0.005, ...rel.map((r) => Math.abs(r ?? 0)));
    const x = (k) => L + (W - L - R) * (k + 0.5) / Math.max(1, at.length);
    const y = (ns) => 12 + (low - 30) * (1 - ns / top);
    const z = (r) => 255 - 34 * r / reach;
    for (const share of [0, 0.5, 1]) {
      make("line", { x1: L, x2: W - R, y1: y(share * top), y2: y(share * top), stroke: colour("--line") }, svg);
      make("text", { x: L - 6, y: y(share * top) + 4, "text-anchor": "end" }, svg).textContent = share ? time(share * top) : "0";
    }
    for (const [r, label] of [[reach, percent(reach)], [0, "0"], [-reach, percent(-reach)]]) {
      make("line", { x1: L, x2: W - R, y1: z(r), y2: z(r), stroke: colour("--line") }, svg);
      make("text", { x: L - 6, y: z(r) + 4, "text-anchor": "end" }, svg).textContent = label;
    }
    const wide = Math.max(1, Math.min(14, (W - L - R) / Math.max(1, at.length) * 0.6));
    at.forEach((i, k) => {
      if (rel[k] !== null) make("rect", { x: x(k) - wide / 2, width: wide, y: Math.min(z(0), z(rel[k])), height: Math.max(0.8, Math.abs(z(rel[k]) - z(0))), fill: colour(rel[k] < 0 ? "--left" : "--right") }, svg);
      if (bins.left_ns[i] !== null) make("circle", { cx: x(k), cy: y(bins.left_ns[i]), r: Math.max(1.6, Math.min(4, wide / 2)), fill: colour("--left") }, svg);
      if (bins.right_ns[i] !== null) {
        const [s, cx, cy] = [Math.max(1.6, Math.min(4, wide / 2)), x(k), y(bins.right_ns[i])];
        make("path", { d: `M${cx - s} ${cy + s}L${cx} ${cy - s}L${cx + s} ${cy + s}z`, fill: colour("--right") }, svg);
      }
    });
    const ticks = Math.min(10, at.length);
    for (let t = 0; t < ticks; t++) {
      const k = Math.floor(t * at.length / ticks);
      make("text", { x: x(k), y: H - 1, "text-anchor": "middle" }, svg).textContent = bins.first[at[k]];
    }
    const cursor = make("line", { y1: 8, y2: 290, stroke: colour("--focus"), "stroke-width": 1.5, visibility: "hidden" }, svg);
    const show = (k) => {
      if (!at.length) return told("chart-told", "No iteration of this launch mode.");
      chartAt = Math.max(0, Math.min(at.length - 1, k));
      const i = at[chartAt];
      cursor.setAttribute("x1", x(chartAt)); cursor.setAttribute("x2", x(chartAt)); cursor.setAttribute("visibility", "visible");
      const fact = facts === null || facts.rows[i] === null ? "" : `, ${facts.rows[i]} rows (${facts.tokens[i]} tokens), ${facts.mode[i]}`;
      told("chart-told", `${name(i)}${fact}: vLLM ${time(bins.left_ns[i])}, isolated ${time(bins.right_ns[i])}, ${percent(relative(bins.left_ns[i], bins.right_ns[i]))}; ${bins.num[i]} of ${bins.of[i]} invocations`);
    };
    svg.onmousemove = (event) => {
      const place = svg.getBoundingClientRect();
      show(Math.floor(((event.clientX - place.left) / place.width * W - L) / (W - L - R) * at.length));
    };
    box.onkeydown = (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1, Home: -1e9, End: 1e9 }[event.key];
      if (step) { show(chartAt + step); event.preventDefault(); }
    };
  }

  // Blue below, orange above, nothing between: told apart with any sight of colour, and by the sign in the text.
  const shade = (r, reach) => {
    const s = Math.max(-1, Math.min(1, r / reach));
    const [far, mid] = [s < 0 ? [31, 95, 168] : [181, 82, 11], root.dataset.theme === "dark" ? [40, 44, 52] : [246, 246, 244]];
    return `rgb(${mid.map((m, c) => Math.round(m + (far[c] - m) * Math.abs(s))).join(",")})`;
  };
  const heat = document.getElementById("heat");
  const cursor = { x: 0, y: 0, on: false };
  const num = bins.first.length;
  const values = cells.left_ns.map((left, at) => relative(left, cells.right_ns[at]));
  const known = values.filter((r) => r !== null).map(Math.abs).sort((a, b) => a - b);
  const reach = Math.max(0.005, known.length ? known[Math.floor(0.98 * (known.length - 1))] : 0);
  function drawHeat() {
    const w = Math.max(2, Math.floor(1140 / Math.max(1, num)));
    const h = Math.max(3, Math.min(10, Math.floor(520 / Math.max(1, layers.length))));
    heat.width = w * num; heat.height = h * layers.length;
    const pen = heat.getContext("2d");
    values.forEach((r, at) => {
      const [x, y] = [(at % num) * w, Math.floor(at / num) * h];
      pen.fillStyle = r === null ? colour("--line") : shade(r, reach);
      pen.fillRect(x, y, w, h);
      if (r === null) { pen.strokeStyle = colour("--soft"); pen.beginPath(); pen.moveTo(x, y + h); pen.lineTo(x + w, y); pen.stroke(); }
    });
    if (cursor.on) { pen.strokeStyle = colour("--focus"); pen.lineWidth = 2; pen.strokeRect(cursor.x * w, cursor.y * h, w, h); }
    const scale = document.getElementById("heat-scale").getContext("2d");
    for (let k = 0; k < 160; k++) { scale.fillStyle = shade((k / 80 - 1) * reach, reach); scale.fillRect(k, 0, 1, 12); }
    told("heat-low", percent(-reach) + " and below"); told("heat-high", percent(reach) + " and above");
  }
  function point(x, y) {
    cursor.x = Math.max(0, Math.min(num - 1, x)); cursor.y = Math.max(0, Math.min(layers.length - 1, y)); cursor.on = true;
    drawHeat();
    const at = cursor.y * num + cursor.x;
    told("heat-told", `layer ${layers[cursor.y]}, ${name(cursor.x)}: vLLM ${time(cells.left_ns[at])}, isolated ${time(cells.right_ns[at])}, ${percent(values[at])}`);
  }
  heat.onmousemove = (event) => {
    const place = heat.getBoundingClientRect();
    point(Math.floor((event.clientX - place.left) / place.width * num), Math.floor((event.clientY - place.top) / place.height * layers.length));
  };
  heat.onkeydown = (event) => {
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (step) { point(cursor.x + step[0], cursor.y + step[1]); event.preventDefault(); }
  };

  function theme(isDark) {
    root.dataset.theme = isDark ? "dark" : "light";
    document.getElementById("theme").setAttribute("aria-pressed", String(isDark));
    chart(); if (num && layers.length) drawHeat();
  }
  document.getElementById("theme").onclick = () => theme(root.dataset.theme !== "dark");
  dark.onchange = () => theme(dark.matches);
  mode.onchange = () => { chartAt = 0; chart(); };
  window.onbeforeprint = () => { if (root.dataset.theme === "dark") theme(false); };
  theme(dark.matches);
})();
