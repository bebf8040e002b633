// Draws the charts of the page from the figures in #data, which the tables have too. Chart.js is loaded before this.
'use strict';

(() => {
  const data = JSON.parse(document.getElementById('data').textContent);
  const charts = [];

  // ---- colours, as the style sheet has them now ----

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();

  // ---- units: one for each axis, from its largest value ----

  const bytesUnit = (most) => [[2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [2 ** 10, 'KiB']].find(([unit]) => most >= unit) || [1, 'B'];
  const timeUnit = (most) => [[1e9, 's'], [1e6, 'ms'], [1e3, 'µs']].find(([unit]) => most >= unit) || [1, 'ns'];
  const short = (value) => value.toLocaleString('en', { maximumFractionDigits: Math.abs(value) >= 100 ? 0 : 2 });

  // ---- shared by the charts ----

  // Draws stripes for layers under the curves, with their names above if there is room.
  const stripes = {
    id: 'stripes',
    beforeDatasetsDraw(chart, _, options) {
      const { ctx, chartArea: area, scales: { x } } = chart;
      ctx.save();
      ctx.font = '11px ' + Chart.defaults.font.family;
      ctx.textAlign = 'center';
      ctx.textBaseline = 'bottom';
      let last = -Infinity;
      (options.layers || []).forEach((layer, i, all) => {
        const from = x.getPixelForValue(layer.from), to = x.getPixelForValue(i + 1 < all.length ? all[i + 1].from : options.end);
        if (i % 2) {
          ctx.fillStyle = colour('stripe');
          ctx.fillRect(from, area.top, to - from, area.height);
        }
        const width = ctx.measureText(layer.label).width;
        if (layer.label && to - from > 6 && (from + to - width) / 2 > last + 5) {
          ctx.fillStyle = colour('quiet');
          ctx.fillText(layer.label, (from + to) / 2, area.top - 3);
          last = (from + to + width) / 2;
        }
      });
      ctx.restore();
    },
  };

  const shortLabel = (layer) => {
    if (layer.name) return layer.label;
    if (layer.number === null) return '';
    return layer.number + (layer.direction === 'forward' ? '→' : layer.direction === 'backward' ? '←' : '');
  };

  const axis = (title, more = {}) => {
    const { ticks = {}, grid = {}, ...rest } = more;
    return {
      title: { display: true, text: title, color: colour('quiet') },
      ticks: { color: colour('quiet'), ...ticks },
      grid: { color: colour('line'), drawBorder: true, lineWidth: 0.5, ...grid },
      ...rest,
    };
  };

  const frame = (scales, more = {}) => {
    const { plugins = {}, ...rest } = more;
    return {
      animation: false,
      layout: { padding: { top: plugins.stripes ? 18 : 0 } }, // for the layers' names
      responsive: true,
      maintainAspectRatio: false,
      scales,
      plugins: {
        legend: { position: 'bottom', labels: { color: colour('text'), boxWidth: 18, boxHeight: 10 }, ...plugins.legend },
        tooltip: { intersect: false, mode: 'index', ...plugins.tooltip },
        stripes: plugins.stripes,
      },
      ...rest,
    };
  };

  const overStep = (subject) => {
    const { profile, layers } = subject;
    const [unit, name] = timeUnit(profile.step_ns), bins = profile.held_bytes.length;
    const timed = layers.filter((layer) => 'begin_ns' in layer);
    return {
      unit,
      at: (i) => (profile.step_ns * i) / bins / unit,
      end: profile.step_ns / unit,
      scale: axis(`time in the step (${name})`, { type: 'linear', min: 0, max: profile.step_ns / unit, grid: { display: false }, ticks: { callback: (value) => short(value) } }),
      plugins: {
        stripes: { end: profile.step_ns / unit, layers: timed.map((layer) => ({ from: layer.begin_ns / unit, label: shortLabel(layer) })) },
        tooltip: { callbacks: { title: (items) => `at ${short(items[0].parsed.x)} ${name}` } },
      },
    };
  };

  // Returns the points of a stepped curve with a value for each bin; the last value goes on to the end of the step.
  const curve = (step, values) => [...values.map((value, i) => ({ x: step.at(i), y: value })), { x: step.end, y: values[values.length - 1] }];

  // ---- the charts ----

  const makers = {
    memory(subject) {
      const step = overStep(subject), { profile, budget_bytes: budget } = subject;
      const most = Math.max(...profile.demand_bytes, ...profile.held_bytes);
      const [unit, name] = bytesUnit(most);
      const line = (label, values, key, more) => ({
        label, data: curve(step, values.map((value) => value / unit)), borderColor: colour(key), backgroundColor: colour(key + '-fill'),
        borderWidth: 2, pointRadius: 0, stepped: 'before', fill: 'origin', ...more,
      });
      const datasets = [line('with Penstock', profile.held_bytes, 'held'), line('without Penstock', profile.demand_bytes, 'without', { borderDash: [2, 2] })];
      if (budget !== null && budget < 2 * most) {
        datasets.push({ label: 'budget', data: [{ x: 0, y: budget / unit }, { x: step.end, y: budget / unit }], borderColor: colour('budget'),
          backgroundColor: 'transparent', borderWidth: 1.5, borderDash: [8, 4], pointRadius: 0, fill: false });
      }
      return { type: 'line', data: { datasets },
        options: frame({ x: step.scale, y: axis(`held on the device (${name})`, { beginAtZero: true, ticks: { callback: (value) => short(value) } }) },
          { plugins: step.plugins, parsing: false }) };
    },

    link(subject) {
      const step = overStep(subject), { profile } = subject;
      const rate = profile.held_bytes.length / (profile.step_ns / 1e9); // bytes in a bin times this are bytes per second
      const most = Math.max(...profile.out_bytes, ...profile.in_bytes) * rate;
      const [unit, name] = bytesUnit(most);
      const area = (label, values, key, sign) => ({
        label, data: curve(step, values.map((value) => (sign * value * rate) / unit)), borderColor: colour(key), backgroundColor: colour(key),
        borderWidth: 1, pointRadius: 0, stepped: 'before', fill: 'origin',
      });
      return { type: 'line', data: { datasets: [area('out to the host', profile.out_bytes, 'out', 1), area('back to the device', profile.in_bytes, 'back', -1)] },
        options: frame({ x: step.scale, y: axis(`${name} per second`, { ticks: { callback: (value) => short(Math.abs(value)) } }) },
          { plugins: { ...step.plugins, tooltip: { callbacks: { ...step.plugins.tooltip.callbacks,
            label: (item) => `${item.dataset.label}: ${short(Math.abs(item.parsed.y))} ${name}/s` } } }, parsing: false }) };
    },

    waits(subject) {
      const { waits } = subject;
      const [unit, name] = timeUnit(Math.max(...waits.map((wait) => Math.max(wait.predicted_ns, wait.actual_ns))));
      const bars = (label, field, key) => ({ label, data: waits.map((wait) => wait[field] / unit), backgroundColor: colour(key), borderColor: colour('text'), borderWidth: 0.5 });
      return { type: 'bar', data: { labels: waits.map((wait) => wait.label), datasets: [bars('measured', 'actual_ns', 'out'), bars('predicted', 'predicted_ns', 'without')] },
        options: frame({ x: axis(`wait (${name})`, { beginAtZero: true }), y: axis('', { title: { display: false }, grid: { display: false } }) }, { indexAxis: 'y' }) };
    },

    layers(subject) {
      const { layers } = subject;
      const [unit, name] = timeUnit(Math.max(...layers.map((layer) => layer.device_ns + layer.exposed_ns)));
      const bars = (label, field, key) => ({ label, data: layers.map((layer) => layer[field] / unit), backgroundColor: colour(key), borderColor: colour('page'), borderWidth: 0.5 });
      return { type: 'bar',
        data: { labels: layers.map((layer) => shortLabel(layer) || '·'), datasets: [bars('device time', 'device_ns', 'held'), bars('waits for copies', 'exposed_ns', 'out')] },
        options: frame({ x: axis('layer (→ forward, ← backward, · between)', { stacked: true, grid: { display: false } }), y: axis(name, { stacked: true, beginAtZero: true }) },
          { plugins: { tooltip: { callbacks: { title: (items) => layers[items[0].dataIndex].label } } } }) };
    },

    // Each tensor is a row of bars from one time to another. A bar across the end of the step is two bars, because the step is a ring.
    spans(subject) {
      const step = overStep(subject), { profile } = subject, round = profile.step_ns;
      const after = (from, time) => (time - from + round) % round;
      const ring = (from, length) => [[from, Math.min(from + length, round)], [0, from + length - round]].filter(([a, b]) => b > a);
      const without = (bars, [from, to]) => bars.flatMap(([a, b]) => [[a, Math.min(b, from)], [Math.max(a, to), b]].filter(([c, d]) => d > c));
      const kinds = { used: [], idle: [], moving: [], away: [] };
      profile.spans.forEach((span, row) => {
        const lives = span.born_ns !== null;
        let used = lives ? ring(span.born_ns, after(span.born_ns, span.freed_ns)) : [[0, round]];
        const put = (kind, bars) => bars.forEach(([a, b]) => kinds[kind].push({ x: [a / step.unit, b / step.unit], y: subject.spans[row] }));
        span.gaps.forEach((gap) => {
          const length = after(gap.from_ns, gap.to_ns) || (lives ? 0 : round); // equal times are no time in a life, and else a whole step
          // Places are times since the gap's begin. A time outside the gap stands at the nearer end: a tensor may be freed on its way.
          const place = (time) => {
            const found = after(gap.from_ns, time);
            return found <= length ? found : found - length < round - found ? length : 0;
          };
          const between = (kind, from, to) => { if (from < to) put(kind, ring((gap.from_ns + from) % round, to - from)); };
          ring(gap.from_ns, length).forEach((bar) => { used = without(used, bar); });
          if (gap.leaves_ns === null) {
            between('idle', 0, length);
            return;
          }
          const leaves = place(gap.leaves_ns), gone = Math.max(leaves, place(gap.gone_ns));
          const [comes, back] = gap.comes_ns === null ? [length, length] : [place(gap.comes_ns), Math.max(gone, place(gap.back_ns))];
          between('idle', 0, leaves);
          between('moving', leaves, gone);
          between('away', gone, comes);
          between('moving', Math.max(gone, comes), back);
          between('idle', back, length);
        });
        put('used', used);
      });
      const bars = (label, kind, fill, border) => ({ label, data: kinds[kind], backgroundColor: fill, borderColor: border, borderWidth: 1, borderSkipped: false, grouped: false, barPercentage: 0.75 });
      return { type: 'bar',
        data: { labels: subject.spans, datasets: [bars('in use', 'used', colour('held'), colour('held')), bars('idle on the device', 'idle', colour('held-fill'), colour('held')),
          bars('on its way', 'moving', colour('out'), colour('out')), bars('away', 'away', 'transparent', colour('quiet'))] },
        options: frame({ x: step.scale, y: axis('', { title: { display: false }, grid: { display: false }, ticks: { autoSkip: false } }) },
          { indexAxis: 'y', plugins: { ...step.plugins, tooltip: { mode: 'nearest', intersect: true, callbacks: {
            label: (item) => `${item.dataset.label}: ${short(item.raw.x[0])} to ${short(item.raw.x[1])}` } } } }) };
    },
  };

  // ---- drawing, repeated when the colours change ----

  Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
  Chart.register(stripes);

  const draw = () => {
    charts.splice(0).forEach((chart) => chart.destroy());
    document.querySelectorAll('canvas[data-chart]').forEach((canvas) => {
      charts.push(new Chart(canvas, makers[canvas.dataset.chart](data[canvas.dataset.subject])));
    });
    document.documentElement.dataset.drawn = charts.length;
  };
  draw();
  ['(prefers-color-scheme: dark)', 'print'].forEach((query) => matchMedia(query).addEventListener('change', draw));
  addEventListener('beforeprint', draw);
  addEventListener('afterprint', draw);
})();
