// The page's own script: reads the data in it, fills the tables, draws the charts before the page counts as loaded, and
// draws them anew, from the same data, for each stretch of time that the reader asks for. All text goes in as text.
"use strict";
(() => {
  // Okabe and Ito's colours, told apart by all eyes; the darkest or lightest of them follows the page
  const PALETTE = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#B8A800", "#7F8C99"];
  const CALM = "#56B4E9";
  const ALARM = "#D55E00";
  const CONFIDENCES = { CERTAIN: "circle", LIKELY: "circle-open-dot", GUESS: "circle-open" };
  const SEVERAL = -2;
  const OPEN = -1;
  const BARS_MAX = 2500; // what Plotly draws one by one without a wait
  const MARKS_MAX = 800;
  const PAGE_ROWS = 25;
  const LABEL_CHARACTERS = 26; // as wide as the margin of a desktop has room for
  const PAPER_WIDTH = 700; // in pixels: A4 and letter have as much between their margins

  // Plotly styles the images of heat maps by an attribute, which the page's policy forbids; as a property it does not
  SVGElement.prototype.setAttribute = function setAttribute(name, value) {
    if (name === "style") this.style.cssText = value;
    else Element.prototype.setAttribute.call(this, name, value);
  };

  const root = document.documentElement;
  const charts = [];
  let paperWidth = null; // while it is printed
  let facts = { from: 0, to: 1, anchors: {}, spans: {}, directory: null, command: ["", ""] };

  // --- data

  const scriptJson = (id) => JSON.parse(document.getElementById(id).textContent);

  async function inflated(base64) {
    const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
    return JSON.parse(await new Response(stream).text());
  }

  // Plotly is text until something is to be drawn. The page's policy lets it run by its hash
  let library = null;
  function loadLibrary() {
    library ??= inflated(scriptJson("library")).then((code) => {
      const script = document.createElement("script");
      script.textContent = code;
      document.body.append(script);
    });
    return library;
  }

  function sums(deltas) {
    let sum = 0;
    return deltas.map((delta) => (sum += delta));
  }

  const cellsOf = (column) =>
    column.values ?? column.codes.map((code) => (code < 0 ? null : column.texts[code]));

  function recordsOf(listing) {
    const columns = listing.columns.map((column) => [column.name, cellsOf(column)]);
    return Array.from({ length: listing.shown }, (_, index) =>
      Object.fromEntries(columns.map(([name, cells]) => [name, cells[index]])));
  }

  // Moments in the order of time. Where none were put together, the first of them are the rows of a table, which say more
  function eventsOf(marks, listing = null) {
    const records = listing === null || marks.counts.length ? [] : recordsOf(listing);
    const names = Object.keys(marks.columns);
    return sums(marks.at).map((at, index) => {
      const event = { ...records[index], at, count: marks.counts[index] ?? 1, first: marks.firsts[index] ?? null, offsets: marks.offsets[index] ?? 0,
        isTold: index < records.length };
      for (const name of names) event[name] = marks.columns[name][marks.kinds[index]];
      return event;
    });
  }

  const countOf = (events) => events.reduce((sum, event) => sum + event.count, 0);

  // --- words

  const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const isSmall = () => window.innerWidth < 700;
  const count = (value) => value.toLocaleString("en-US");
  const cut = (text, length = LABEL_CHARACTERS) => (text.length > length ? text.slice(0, length - 1) + "…" : text);
  const several = (value, noun, plural = `${noun}s`) => `${count(value)} ${value === 1 ? noun : plural}`;
  const words = (code) => (code ?? "not known").toLowerCase().replaceAll("_", " ");
  // Plotly reads a little HTML in texts: these characters would begin it
  const plain = (text, length = 60) =>
    cut(String(text ?? "-"), length).replace(/[\u0000-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]/g, "\ufffd")
      .replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll("$", "&#36;");

  function time(ms) {
    return new Date(ms).toISOString().replace("T", " ").replace("Z", "");
  }

  function clock(ms, width) {
    const text = time(ms);
    return width < 60_000 ? text.slice(11) : width < 86_400_000 ? text.slice(11, 19) : text.slice(0, 16);
  }

  function duration(ms) {
    if (Math.abs(ms) < 1000) return `${Math.round(ms)} ms`;
    if (Math.abs(ms) < 60_000) return `${Number((ms / 1000).toPrecision(3))} s`;
    let seconds = Math.round(ms / 1000);
    const parts = [];
    for (const [size, unit] of [[86_400, "d"], [3_600, "h"], [60, "min"], [1, "s"]]) {
      const whole = Math.floor(seconds / size);
      seconds -= whole * size;
      if (whole || parts.length) parts.push(`${count(whole)} ${unit}`);
    }
    return parts.slice(0, 2).join(" ");
  }

  const FORMATS = {
    text: (value) => cut(value, 400),
    number: count,
    time,
    duration,
    share: (value) => `${Math.round(value * 100)} %`,
    flag: (value) => (value ? "yes" : "no"),
  };

  const HEADINGS = { group_id: "group", archived: "given up", offset_changes: "share offsets changed", unowned_ms: "time unowned", gap_before_ms: "gap before", duration_ms: "duration",
    unowned_likely_ms: "time unowned" };
  const heading = (name) => HEADINGS[name] ?? name.replaceAll("_", " ");

  function element(name, attributes = {}, text = null) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (key === "class") made.className = value;
      else made.setAttribute(key, value);
    }
    if (text !== null) made.textContent = text;
    return made;
  }

  function button(text, action, attributes = {}) {
    const made = element("button", { type: "button", ...attributes }, text);
    made.addEventListener("click", action);
    return made;
  }

  function choice(label, options, action) {
    const wrapper = element("label", {}, `${label} `);
    const select = element("select");
    options.forEach(([value, text]) => select.append(element("option", { value }, text)));
    select.addEventListener("change", () => action(select.value));
    wrapper.append(select);
    return wrapper;
  }

  // --- tables

  const FILTERS = ["cause", "kind", "delivery_state"];

  class Table {
    constructor(details, listing, onTime) {
      this.listing = listing;
      this.pager = details.querySelector(".pager");
      this.place = details.querySelector(".scroll");
      this.onTime = onTime;
      this.cells = listing.columns.map(cellsOf);
      this.order = Array.from({ length: listing.shown }, (_, index) => index);
      this.chosen = this.order;
      this.page = 0;
      this.sorted = null;
      const filter = listing.columns.findIndex((column) =>
        FILTERS.includes(column.name) && column.texts.length > 1);
      if (listing.shown > PAGE_ROWS) this.addPager(filter);
      this.show();
    }

    addPager(filter) {
      this.before = button("Previous", () => this.turn(-1));
      this.after = button("Next", () => this.turn(1));
      this.where = element("span", { role: "status" });
      this.pager.append(this.before, this.after, this.where);
      if (filter < 0) return;
      const column = this.listing.columns[filter];
      const options = [["", "all"], ...column.texts.map((text) => [text, words(text)])];
      this.pager.append(choice(`${heading(column.name)}:`, options, (value) => {
        this.chosen = value === "" ? this.order : this.order.filter((row) => this.cells[filter][row] === value);
        this.page = 0;
        this.show();
      }));
    }

    only(isChosen) {
      this.chosen = this.order.filter(isChosen);
      this.page = 0;
      this.show();
    }

    turn(by) {
      this.page += by;
      this.show();
    }

    sort(index) {
      const sign = this.sorted?.index === index ? -this.sorted.sign : 1;
      const cells = this.cells[index];
      const compared = (a, b) => (cells[a] === cells[b] ? a - b
        : cells[a] === null ? 1 : cells[b] === null ? -1 : sign * (cells[a] < cells[b] ? -1 : 1));
      this.sorted = { index, sign };
      this.order = [...this.order].sort(compared);
      this.chosen = [...this.chosen].sort(compared);
      this.page = 0;
      this.show();
    }

    show() {
      const first = this.page * PAGE_ROWS;
      const rows = this.chosen.slice(first, first + PAGE_ROWS);
      if (this.where) {
        this.where.textContent = `${count(rows.length ? first + 1 : 0)} to ${count(first + rows.length)} of ${
          count(this.chosen.length)}`;
        this.before.disabled = first === 0;
        this.after.disabled = first + PAGE_ROWS >= this.chosen.length;
      }
      const table = element("table");
      const head = element("tr");
      this.listing.columns.forEach((column, index) => {
        const isSorted = this.sorted?.index === index;
        const cell = element("th", { scope: "col", class: column.kind === "text" ? "text" : "number",
          "aria-sort": isSorted ? (this.sorted.sign > 0 ? "ascending" : "descending") : "none" });
        cell.append(button(heading(column.name), () => this.sort(index), { class: "sorter" }));
        head.append(cell);
      });
      const thead = element("thead");
      thead.append(head);
      const body = element("tbody");
      rows.forEach((row) => body.append(this.row(row)));
      table.append(thead, body);
      this.place.replaceChildren(table);
    }

    row(row) {
      const line = element("tr");
      this.listing.columns.forEach((column, index) => {
        const value = this.cells[index][row];
        const cell = element("td", { class: column.kind === "text" ? "text" : "number" });
        const text = value === null ? "–" : FORMATS[column.kind](value);
        if (value === null) cell.classList.add("none");
        if (column.name === "group_id" && value !== null) {
          cell.append(element("a", { href: permalink(value) }, text));
        } else if (column.name === "verdict" && value !== null) {
          cell.append(element("span", { class: `verdict ${value.toLowerCase()}` }, text));
        } else if (column.kind === "time" && this.onTime && index === this.onTime.index && value !== null) {
          cell.append(button(text, () => this.onTime.show(value), { class: "sorter", title: "Show it in the chart" }));
        } else {
          cell.textContent = text;
        }
        line.append(cell);
      });
      return line;
    }
  }

  // --- charts

  // What a chart takes is kept for it from the start, and stays whatever is zoomed: `chart` in the styles has its height
  const layoutOf = (chart, more) => ({
    height: chart.place.clientHeight,
    width: paperWidth ?? chart.place.clientWidth,
    margin: { l: isSmall() ? 52 : 190, r: isSmall() ? 8 : 20, t: 10, b: 38 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, -apple-system, Segoe UI, Roboto, sans-serif", size: 12, color: css("--ink") },
    hoverlabel: { align: "left", bgcolor: css("--paper"), bordercolor: css("--line"), font: { color: css("--ink") } },
    hovermode: "closest",
    dragmode: isSmall() ? false : "zoom",
    showlegend: false,
    bargap: 0.15,
    ...more,
  });

  const axis = (more) => ({
    gridcolor: css("--grid"),
    linecolor: css("--line"),
    tickcolor: css("--line"),
    zeroline: false,
    automargin: isSmall() && more.ticktext ? "left" : false, // a phone has as much room for names as they take
    tickfont: { color: css("--soft"), size: isSmall() ? 11 : 12 },
    ...more,
  });

  const titled = (text) => ({ text, font: { color: css("--soft"), size: 12 }, standoff: 6 });
  const timeAxis = (view, more) => axis({ type: "date", range: view.x, nticks: isSmall() ? 4 : undefined, tickangle: 0, hoverformat: "%Y-%m-%d %H:%M:%S.%L", ...more });
  const laneAxis = (names, domain, more) => axis({
    domain, range: [names.length - 0.5, -0.5], tickvals: names.map((_, index) => index),
    ticktext: names.map((name) => plain(name, LABEL_CHARACTERS)), fixedrange: true, ...more,
  });

  function ticksOf(names, y) {
    const [low, high] = [Math.max(Math.ceil(Math.min(...y)), 0), Math.min(Math.floor(Math.max(...y)), names.length - 1)];
    const step = Math.max(1, Math.ceil((high - low + 1) / 32));
    const values = [];
    for (let index = low; index <= high; index += step) values.push(index);
    return { tickvals: values, ticktext: values.map((index) => plain(names[index], LABEL_CHARACTERS)) };
  }

  // Diagonal lines over what was not read: a hole looks like one
  function holeShapes(holes, view, size) {
    const width = Math.max(size.width, 50);
    const msPerPixel = (view.x[1] - view.x[0]) / width;
    const shapes = [];
    for (const hole of holes) {
      const from = Math.max(hole.after ?? view.x[0], view.x[0]);
      const to = Math.min(hole.before ?? view.x[1], view.x[1]);
      if (!(to > from)) continue;
      const stamp = (ms) => time(ms).replace(" ", "_");
      const [across, high] = [Math.max((to - from) / msPerPixel, 3), size.height];
      let path = "";
      for (let start = -high; start < across; start += 9) {
        const [x0, y0] = [Math.max(start, 0), Math.max(-start, 0)];
        const [x1, y1] = [Math.min(start + high, across), Math.min(high, across - start)];
        path += `M${stamp(from + x0 * msPerPixel)},${y0 / high}L${stamp(from + x1 * msPerPixel)},${y1 / high}`;
      }
      const line = { color: css("--hole"), width: 1 };
      shapes.push(
        { type: "rect", xref: "x", yref: "paper", x0: from, x1: to, y0: 0, y1: 1, line: { ...line, dash: "dot" },
          layer: "below", label: { text: "not read", textposition: "top left", font: { color: css("--soft"), size: 11 } } },
        { type: "path", xref: "x", yref: "paper", path, line, opacity: 0.55, layer: "below" },
      );
    }
    return shapes;
  }

  // Charts of one group show one time: who moves in one of them moves in all
  const sectionOf = (figure) => figure.closest("section").id;
  const linkedTo = (chart) => charts.filter((other) => other !== chart && other.home && other.section === chart.section
    && Object.hasOwn(facts.spans, chart.section));

  const CONFIG = { displayModeBar: false, showTips: false, doubleClick: false };

  class Chart {
    // `make(view, size)` gives traces, layout and words for a view; `home` is the whole of it; `zooms`: it has a time
    constructor(figure, make, home = null) {
      this.figure = figure;
      this.place = figure.querySelector(".chart");
      this.reading = figure.querySelector(".reading");
      this.make = make;
      this.home = home;
      this.section = sectionOf(figure);
      if (home && Object.hasOwn(facts.spans, this.section)) home.x = [...facts.spans[this.section]];
      this.view = home && structuredClone(home);
      const shown = home && linkedTo(this)[0];
      if (shown) this.view.x = [...shown.view.x];
      if (home) this.addControls(figure.querySelector(".controls"));
      charts.push(this);
    }

    addControls(controls) {
      const made = (name, sign, action) => button(isSmall() ? sign : name, action, { "aria-label": name, title: name });
      controls.append(
        element("span", { class: "gap" }),
        made("Earlier", "‹", () => this.move(-0.5)),
        made("Later", "›", () => this.move(0.5)),
        made("Zoom in", "+", () => this.scale(0.5)),
        made("Zoom out", "−", () => this.scale(2)),
        made("All", "All", () => this.show(this.home)),
      );
    }

    move(by) {
      const width = this.view.x[1] - this.view.x[0];
      this.show({ ...this.view, x: this.view.x.map((x) => x + by * width) });
    }

    scale(by) {
      const [low, high] = this.view.x;
      const [middle, half] = [(low + high) / 2, Math.max(((high - low) * by) / 2, 5)];
      this.show({ ...this.view, x: [middle - half, middle + half] });
    }

    around(at) {
      const width = Math.max((this.home.x[1] - this.home.x[0]) / 40, 2_000);
      this.show({ x: [at - width / 2, at + width / 2], y: this.home.y });
      this.figure.scrollIntoView({ block: "start" });
    }

    show(view) {
      const [low, high] = this.home.x;
      const width = Math.min(view.x[1] - view.x[0], high - low);
      const start = Math.min(Math.max(view.x[0], low), high - width);
      this.view = structuredClone({ ...view, x: [start, start + width] });
      this.draw();
      for (const other of linkedTo(this)) {
        if (other.view.x[0] === this.view.x[0] && other.view.x[1] === this.view.x[1]) continue;
        other.view = { ...other.view, x: [...this.view.x] };
        if (other.isDrawn) other.draw();
      }
    }

    draw() {
      const size = { width: this.place.clientWidth - (isSmall() ? 112 : 210), height: 300 };
      const { traces, layout, reading } = this.make(this.view, size, this);
      const drawn = Plotly.react(this.place, traces, layout, CONFIG);
      if (reading !== undefined) this.reading.textContent = reading;
      if (!this.isDrawn) {
        this.isDrawn = true;
        this.listen();
      }
      this.figure.dataset.drawn = String(traces.length);
      return drawn;
    }

    // In another width Plotly would leave the legend where it was
    drawAnew() {
      Plotly.purge(this.place);
      this.isDrawn = false;
      this.draw();
    }

    listen() {
      this.place.on("plotly_relayout", (change) => this.relaid(change));
      this.place.on("plotly_doubleclick", () => this.home && this.show(this.home));
      this.place.on("plotly_click", (event) => {
        const zoomed = event.points[0]?.customdata?.zoom;
        const anchor = event.points[0]?.customdata?.anchor;
        if (zoomed) this.show({ ...this.view, ...zoomed });
        else if (anchor) window.location.hash = anchor;
      });
    }

    relaid(change) {
      if (!this.home) return;
      const range = (name) => (change[`${name}.range`] ?? (change[`${name}.range[0]`] === undefined ? null
        : [change[`${name}.range[0]`], change[`${name}.range[1]`]]));
      const x = range("xaxis");
      const y = range(this.home.yaxis ?? "yaxis2");
      if (!x && !y) return;
      const view = { ...this.view };
      if (x) view.x = x.map(moment);
      if (y && view.y) view.y = y.map(Number);
      this.show(view);
    }
  }

  function moment(value) {
    if (typeof value === "number") return value;
    const text = value.replace(" ", "T");
    return Date.parse(text.includes("T") ? `${text}Z` : text);
  }

  const ends = (x) => [Math.min(...x), Math.max(...x)];

  // The stretch that holds all of some moments, with a little room, in the report's own stretch
  function homeOf(...lists) {
    let [low, high] = [Infinity, -Infinity];
    for (const list of lists) {
      for (const at of list) {
        if (at === null) continue;
        if (at < low) low = at;
        if (at > high) high = at;
      }
    }
    if (low > high) return [facts.from, facts.to];
    low = Math.max(low, facts.from);
    high = Math.min(high, facts.to);
    const room = Math.max((high - low) * 0.02, 500);
    return [low - room, high + room];
  }

  // Marks in lanes: one by one, or where there are too many for that, counted by bins
  function laneTrace(events, lanes, view, colourOf, textOf) {
    const [from, to] = view.x;
    const seen = events.filter((event) => event.at >= from && event.at <= to);
    if (seen.length <= MARKS_MAX) {
      return {
        seen,
        trace: {
          type: "scatter", mode: "markers", x: seen.map((event) => event.at),
          y: seen.map((event) => lanes.indexOf(event.lane)),
          marker: {
            size: seen.map((event) => event.size ?? 11), symbol: seen.map((event) => (event.count > 1 ? "square-open" : CONFIDENCES[event.confidence] ?? "circle-open")),
            color: seen.map(colourOf), opacity: seen.map((event) => (event.confidence === "GUESS" ? 0.75 : 1)),
            line: { width: 1.5, color: seen.map(colourOf) },
          },
          text: seen.map(textOf), hovertemplate: "%{text}<extra></extra>",
          customdata: seen.map((event) => ({ zoom: { x: [event.at - (to - from) / 20, event.at + (to - from) / 20] } })),
        },
      };
    }
    const width = (to - from) / 120;
    const bins = new Map();
    for (const event of seen) {
      const place = Math.floor((event.at - from) / width);
      const key = `${event.lane}|${place}`;
      const bin = bins.get(key) ?? { lane: event.lane, place, count: 0, sample: event, CERTAIN: 0, LIKELY: 0, GUESS: 0 };
      bin.count += event.count;
      bin[event.confidence] += event.count;
      bins.set(key, bin);
    }
    const all = [...bins.values()];
    const most = Math.max(...all.map((bin) => bin.count));
    return {
      seen,
      isBinned: true,
      trace: {
        type: "scatter", mode: "markers", x: all.map((bin) => from + (bin.place + 0.5) * width),
        y: all.map((bin) => lanes.indexOf(bin.lane)),
        marker: { symbol: "square", size: all.map((bin) => 4 + 13 * Math.sqrt(bin.count / most)),
          color: all.map((bin) => colourOf(bin.sample)), opacity: 0.85, line: { width: 0 } },
        text: all.map((bin) => `${count(bin.count)} × ${words(bin.lane)}<br>${clock(from + bin.place * width, to - from)}, ${
          duration(width)}<br>${count(bin.CERTAIN)} certain, ${count(bin.LIKELY)} likely, ${count(bin.GUESS)} guess<br>click to see them`),
        hovertemplate: "%{text}<extra></extra>",
        customdata: all.map((bin) => ({ zoom: { x: [from + (bin.place - 1) * width, from + (bin.place + 2) * width] } })),
      },
    };
  }

  // --- the pictures

  const DRAW = {};

  DRAW.drawGroups = (figure, data, listings) => {
    const measures = [["rebalances", "Rebalances", "rebalances"], ["unowned_ms", "Time unowned", "partition time without an owner"],
      ["rewinds", "Commits back", "commits that went back"], ["redelivered", "Redelivered", "records handed back or given out again"],
      ["extra_deliveries", "Extra deliveries", "deliveries beyond the first of a record"],
      ["archived", "Given up", "records given up"],
      ["offset_changes", "Offsets changed", "share partitions whose offsets a tool reset or deleted"], ["holes", "Holes", "holes in the group's log partitions"]];
    let measure = measures.find(([name]) => data.measures[name].count > 0) ?? measures[0];
    const controls = figure.querySelector(".controls");
    const chart = new Chart(figure, (view, size, own) => {
      const [name, , title] = measure;
      const { count: having, groups: top, causes } = data.measures[name];
      const shown = (value) => (name === "unowned_ms" ? duration(value) : count(value));
      const most = top.length ? top[0][name] : 1;
      // what the bar does not say: for how long nobody owned something, and how far behind the group is
      const more = (group) => [shown(group[name]), name !== "unowned_ms" && group.unowned_ms ? `${duration(group.unowned_ms)} unowned` : "",
        group.lag === null ? "" : `lag ${count(group.lag)}`].filter(Boolean).slice(0, isSmall() ? 1 : 3).join(" · ");
      const reading = top.length ? `${several(having, "group")} of ${count(listings[0].rowCount)}${
        having > top.length ? `; the first ${count(top.length)} are drawn` : ""}. Click a bar to go to its group.` : "None in any group.";
      if (top.length < 2) { // one bar compares with nothing
        const text = top.length ? `${plain(top[0].group_id)}: ${more(top[0])}` : "none";
        return { traces: [], reading, layout: layoutOf(own, { xaxis: { visible: false }, yaxis: { visible: false }, dragmode: false,
          annotations: [{ text, showarrow: false, xref: "paper", yref: "paper", x: 0, y: 0.9, xanchor: "left", font: { size: 14 } }], margin: { l: 0, r: 0, t: 10, b: 10 } }) };
      }
      const hover = (group, index) => `${plain(group.group_id)}<br>${words(group.group_type)} group<br>${
        group.parts[index] ? `${shown(group.parts[index])} of ${shown(group[name])} by ${words(causes[index])}<br>` : ""}${several(group.rebalances, "rebalance")}, ${
        duration(group.unowned_ms)} unowned<br>${several(group.rewinds, "commit")} back<br>${count(group.redelivered)} redelivered (${count(group.extra_deliveries)} extra deliveries), ${count(group.archived)} given up`;
      const traces = causes.map((cause, index) => ({
        type: "bar", orientation: "h", name: words(cause), x: top.map((group) => group.parts[index]), y: top.map((_, place) => place),
        marker: { color: index === causes.length - 1 && causes.length > 1 ? PALETTE[7] : PALETTE[index % 7] },
        hovertext: top.map((group) => hover(group, index)), hovertemplate: "%{hovertext}<extra></extra>",
        customdata: top.map((group) => ({ anchor: permalink(group.group_id) })), showlegend: causes.length > 1 && top.some((group) => group.parts[index]),
      }));
      traces.push({
        type: "scatter", mode: "text", x: top.map((group) => group[name]), y: top.map((_, place) => place), text: top.map((group) => ` ${more(group)}`),
        textposition: "middle right", cliponaxis: false, textfont: { color: css("--ink") }, hoverinfo: "skip", showlegend: false,
      });
      const space = own.place.clientHeight - 90;
      return {
        traces, reading,
        layout: layoutOf(own, {
          barmode: "stack", showlegend: true, legend: { orientation: "h", traceorder: "normal", y: 1, yanchor: "bottom", x: isSmall() ? -0.3 : 0, font: { color: css("--soft"), size: 11 }, itemclick: false, itemdoubleclick: false },
          margin: { l: isSmall() ? 52 : 190, r: isSmall() ? 60 : 190, t: 50, b: 40 },
          xaxis: axis({ range: [0, most * 1.02], title: titled(title), fixedrange: true, showticklabels: name !== "unowned_ms", nticks: 6, rangemode: "tozero", tickformat: ",d" }),
          yaxis: laneAxis(top.map((group) => group.group_id), [Math.max(0, 1 - (top.length * 26) / space), 1], { showgrid: false }),
          dragmode: false,
        }),
      };
    });
    if (isSmall()) {
      const chooser = choice("By", measures.map(([name, title]) => [name, title]), (chosen) => {
        measure = measures.find(([name]) => name === chosen);
        chart.draw();
      });
      chooser.querySelector("select").value = measure[0];
      controls.append(chooser);
      return chart;
    }
    for (const item of measures) {
      const made = button(item[1], () => {
        measure = item;
        controls.querySelectorAll("button[aria-pressed]").forEach((other) => other.setAttribute("aria-pressed", String(other === made)));
        chart.draw();
      }, { "aria-pressed": String(item === measure) });
      controls.append(made);
    }
    return chart;
  };

  const LANES = [["rebalances", "rebalances", PALETTE[0]], ["rewinds", "commits back", PALETTE[3]], ["extra_deliveries", "extra deliveries", PALETTE[1]], ["archived", "given up", ALARM]];

  DRAW.drawTimeline = (figure, data, listings) => {
    const rows = recordsOf(listings[0]);
    const lanes = LANES.filter(([name]) => rows.some((row) => row[name]));
    const home = { x: homeOf(rows.map((row) => row.bin), rows.map((row) => row.bin + data.width)) };
    return new Chart(figure, (view, size, own) => {
      const seen = rows.filter((row) => row.bin + data.width >= view.x[0] && row.bin <= view.x[1]);
      const middle = seen.map((row) => row.bin + data.width / 2);
      const text = seen.map((row) => `${clock(row.bin, view.x[1] - view.x[0])}, ${duration(data.width)}<br>${several(row.rebalances, "rebalance")}, ${
        count(row.storm_rebalances)} of them in storms<br>${several(row.rewinds, "commit")} back<br>${count(row.extra_deliveries)} extra deliveries, ${count(row.archived)} given up`);
      const bars = (index, y, color, name) => ({ type: "bar", name, x: middle, y, width: data.width * 0.9, xaxis: "x", yaxis: index ? `y${index + 1}` : "y", marker: { color },
        text, textposition: "none", hovertemplate: "%{text}<extra></extra>" });
      const traces = lanes.flatMap(([name, title, color], index) => (name !== "rebalances" ? [bars(index, seen.map((row) => row[name]), color, title)] : [
        bars(index, seen.map((row) => row.rebalances - row.storm_rebalances), color, title), bars(index, seen.map((row) => row.storm_rebalances), ALARM, "in storms"),
      ]));
      const axes = Object.fromEntries(lanes.map(([, title], index) => [index ? `yaxis${index + 1}` : "yaxis", axis({
        domain: [1 - (index + 1) / lanes.length + 0.03, 1 - index / lanes.length - 0.07], rangemode: "tozero", fixedrange: true, nticks: 3, tickformat: ",d",
      })]));
      const titles = lanes.map(([, title], index) => ({ text: title, showarrow: false, xref: "paper", yref: "paper", x: 0, y: 1 - index / lanes.length, xanchor: "left", yanchor: "top", font: { color: css("--soft"), size: 11 } }));
      const sum = (name) => seen.reduce((all, row) => all + row[name], 0);
      return {
        traces,
        layout: layoutOf(own, { barmode: "stack", margin: { l: isSmall() ? 52 : 60, r: 20, t: 4, b: 38 }, annotations: titles, xaxis: timeAxis(view, { anchor: lanes.length > 1 ? `y${lanes.length}` : "y" }), ...axes,
          shapes: holeShapes(data.holes, view, { ...size, height: own.place.clientHeight - 48 }) }),
        reading: `${several(sum("rebalances"), "rebalance")}, ${count(sum("storm_rebalances"))} of them in storms (orange); ${several(sum("rewinds"), "commit")} back; ${
          count(sum("extra_deliveries"))} extra deliveries, ${count(sum("archived"))} given up.`,
      };
    }, home);
  };

  DRAW.drawCoverage = (figure, data) => {
    const logs = data.read.map((item) => item.log);
    for (const hole of data.holes) if (!logs.includes(hole.log)) logs.push(hole.log);
    const home = { x: homeOf(data.read.map((item) => item.from), data.read.map((item) => item.to)), y: [logs.length - 0.5, -0.5], yaxis: "yaxis" };
    return new Chart(figure, (view, size, own) => {
      const bounded = data.holes.map((hole) => [hole, Math.max(hole.after ?? view.x[0], view.x[0]), Math.min(hole.before ?? view.x[1], view.x[1])]);
      const holes = bounded.map(([hole, from, to]) => [hole, from, Math.max(to, from + (view.x[1] - view.x[0]) / 200)]);
      const read = data.read.filter((item) => item.from !== null);
      return {
        traces: [
          { type: "bar", orientation: "h", name: "read", base: read.map((item) => item.from), x: read.map((item) => Math.max(item.to - item.from, (view.x[1] - view.x[0]) / 500)),
            y: read.map((item) => logs.indexOf(item.log)), width: 0.7, marker: { color: PALETTE[0], opacity: 0.8 },
            text: read.map((item) => `${plain(item.log)}<br>${count(item.offsets)} offsets read<br>${time(item.from)}<br>${time(item.to)}`),
            textposition: "none", hovertemplate: "%{text}<extra></extra>" },
          { type: "bar", orientation: "h", name: "not read", base: holes.map(([, from]) => from), x: holes.map(([, from, to]) => to - from),
            y: holes.map(([hole]) => logs.indexOf(hole.log)), width: 0.9,
            marker: { color: css("--paper"), line: { color: css("--hole"), width: 1 }, pattern: { shape: "/", fgcolor: css("--bad"), bgcolor: css("--paper"), size: 6, solidity: 0.3 } },
            text: holes.map(([hole]) => plain(hole.text, 160)), textposition: "none", hovertemplate: "%{text}<extra></extra>" },
        ],
        layout: layoutOf(own, {
          barmode: "overlay",
          xaxis: timeAxis(view),
          yaxis: axis({ range: view.y, ...ticksOf(logs, view.y), showgrid: false }),
        }),
        reading: `${several(data.read.length, "log partition")} with records; ${data.holes.length ? several(data.holes.length, "hole") : "no holes"}.`,
      };
    }, home);
  };

  const LANE_HEIGHT = 24;

  DRAW.drawOwners = (figure, data, listings) => {
    const events = eventsOf(data.marks, listings[0]).map((event) => ({ ...event, lane: event.cause }));
    const lanes = [...new Set(events.map((event) => event.lane))].sort();
    const [rows, starts] = [sums(data.rows), sums(data.starts)];
    const stops = starts.map((start, index) => (data.lengths[index] === OPEN ? facts.to : start + data.lengths[index]));
    const names = data.partitions;
    const home = { x: homeOf(starts, stops, events.map((event) => event.at)), y: [names.length - 0.5, -0.5] };
    const label = (member) => (member === SEVERAL ? "several members"
      : data.clients[member][0] || data.clients[member][2] || data.memberIds[member]);
    const owner = (member) => (member === SEVERAL ? "several members in turn"
      : `${plain(label(member))}<br>member ${plain(data.memberIds[member], 70)}<br>from ${plain(data.clients[member][1])}`);
    const colour = (member) => (member === SEVERAL ? css("--hole") : PALETTE[member % PALETTE.length]);
    // null where an assignment cannot be read
    const movedText = (event) => ((event.partitions_moved ?? null) === null ? "how many partitions moved is not known"
      : `${several(event.partitions_moved, "partition")} of ${count(event.partitions_total ?? 0)} moved`);
    const laneText = (event) => (!event.isTold ? [
      `${event.count > 1 ? `${count(event.count)} × ` : ""}${words(event.cause)}, ${words(event.confidence)} (${words(event.method)})`, time(event.at),
    ] : [
      `${words(event.cause)}, ${words(event.confidence)} (${words(event.method)})`,
      `${time(event.at)}, generation ${event.to_generation}`,
      event.duration_ms === null ? "not finished" : `took ${duration(event.duration_ms)}`,
      `${movedText(event)}, ${duration(event.unowned_likely_ms ?? 0)} unowned`,
      event.joined_count ? `in: ${plain(event.who_joined, 90)}` : "", event.left_count ? `out: ${plain(event.who_left, 90)}` : "",
      event.in_storm ? "in a storm" : "",
    ]).filter(Boolean).join("<br>");

    function visible(view) {
      const [low, high] = ends(view.y).map((y, index) => (index ? Math.floor(y + 0.5) : Math.ceil(y - 0.5)));
      const found = [];
      for (let index = 0; index < rows.length; index += 1) {
        if (rows[index] >= low && rows[index] <= high && starts[index] < view.x[1] && stops[index] > view.x[0]) found.push(index);
      }
      return { found, low: Math.max(low, 0), high: Math.min(high, names.length - 1) };
    }

    function bars(found) {
      const withText = found.length <= 300;
      return {
        type: "bar", orientation: "h", xaxis: "x", yaxis: "y2", base: found.map((index) => starts[index]),
        x: found.map((index) => stops[index] - starts[index]), y: found.map((index) => rows[index]), width: 0.78,
        marker: { color: found.map((index) => colour(data.members[index])), line: { width: 0.5, color: css("--paper") } },
        text: withText ? found.map((index) => plain(label(data.members[index]), 24)) : undefined,
        textposition: withText ? "inside" : "none", insidetextanchor: "start", textangle: 0, textfont: { size: 11 },
        hovertext: found.map((index) => `${plain(names[rows[index]])}<br>${owner(data.members[index])}<br>${time(starts[index])}<br>${
          data.lengths[index] === OPEN ? "still" : time(stops[index])}<br>for ${duration(stops[index] - starts[index])}`),
        hovertemplate: "%{hovertext}<extra></extra>",
      };
    }

    function cells({ found, low, high }, view) {
      const perRow = Math.ceil((high - low + 1) / 80);
      const rowCount = Math.ceil((high - low + 1) / perRow);
      const columnCount = 160;
      const width = (view.x[1] - view.x[0]) / columnCount;
      const changes = Array.from({ length: rowCount }, () => new Array(columnCount).fill(0));
      for (const index of found) {
        const column = Math.floor((starts[index] - view.x[0]) / width);
        if (column >= 0 && column < columnCount) changes[Math.floor((rows[index] - low) / perRow)][column] += data.counts.length ? data.counts[index] : 1;
      }
      const middle = (row) => low + row * perRow + (perRow - 1) / 2;
      const last = (row) => Math.min(low + (row + 1) * perRow - 1, high);
      return {
        perRow, width,
        trace: {
          type: "heatmap", xaxis: "x", yaxis: "y2", x0: view.x[0] + width / 2, dx: width, y0: middle(0), dy: perRow, z: changes.map((line) => line.map((value) => value || null)),
          zmin: 0, zmax: Math.max(...changes.flat(), 1), colorscale: root.dataset.theme === "dark" ? [[0, "#1d3a52"], [0.5, "#3f8fc9"], [1, "#d9efff"]] : [[0, "#d3e6f4"], [0.5, "#3f8fc9"], [1, "#08325a"]],
          colorbar: { thickness: 10, len: 0.7, yanchor: "bottom", y: 0, title: { text: "changes", font: { size: 11 } }, outlinewidth: 0, tickfont: { size: 11 } }, showscale: !isSmall(), hoverongaps: false,
          customdata: changes.map((line, row) => line.map((_, column) => ({ zoom: {
            x: [view.x[0] + (column - 1.5) * width, view.x[0] + (column + 2.5) * width], y: [last(row) + 0.5, low + row * perRow - 0.5] } }))),
          text: changes.map((line, row) => line.map((value, column) => `${plain(names[low + row * perRow])}${perRow > 1 ? ` to ${plain(names[last(row)])}` : ""}<br>${
            several(value, "change")} of owner<br>${clock(view.x[0] + column * width, view.x[1] - view.x[0])}, ${duration(width)}<br>click to see them`)),
          hovertemplate: "%{text}<extra></extra>",
        },
      };
    }

    const chart = new Chart(figure, (view, size, own) => {
      const seen = visible(view);
      const isBars = seen.found.length <= BARS_MAX; // of many partitions each is a thin line, and tells more than a cell without a change
      const laneHeight = lanes.length * LANE_HEIGHT + 8;
      const total = own.place.clientHeight - 48;
      const split = 1 - laneHeight / total;
      const marks = laneTrace(events, lanes, view, (event) => (["MEMBER_EXPIRED", "UNKNOWN"].includes(event.cause) ? ALARM : css("--ink")), laneText);
      const body = isBars ? { trace: bars(seen.found) } : cells(seen, view);
      const traces = [marks.trace, body.trace];
      if (marks.seen.length <= 150) {
        traces.push({ type: "scatter", mode: "lines", xaxis: "x", yaxis: "y2", hoverinfo: "skip", line: { color: css("--ink"), width: 1, dash: "dot" }, opacity: 0.45,
          x: marks.seen.flatMap((event) => [event.at, event.at, null]), y: marks.seen.flatMap(() => [seen.low - 0.5, seen.high + 0.5, null]) });
      }
      return {
        traces,
        layout: layoutOf(own, {
          uniformtext: { minsize: 10, mode: "hide" },
          xaxis: timeAxis(view, { anchor: "y2" }),
          yaxis: laneAxis(lanes.map(words), [split + 14 / total, 1]),
          yaxis2: axis({ domain: [0, split - 4 / total], range: view.y, ...ticksOf(names, view.y), showgrid: false }),
          shapes: holeShapes(data.holes, view, { ...size, height: total }),
        }),
        reading: `${several(countOf(marks.seen), "rebalance")}; ${
          several(seen.high - seen.low + 1, "partition")}, ${several(seen.found.length, "stretch").replace("stretchs", "stretches")} of ownership, ${clock(view.x[0], 0).slice(0, 8)} to ${clock(view.x[1], 0).slice(0, 8)}.${
          isBars ? "" : ` Counted together: a cell is ${several(body.perRow, "partition")} and ${duration(body.width)}. Click a cell, or zoom in, to see the owners.`}`,
      };
    }, home);
    return chart;
  };

  DRAW.drawCommits = (figure, data, listings) => {
    const [bins, lags] = [listings[0], listings[2]].map(recordsOf);
    const events = eventsOf(data.marks, listings[1]).map((event) => ({ ...event, lane: event.kind }));
    const lanes = [...new Set(events.map((event) => event.lane))].sort();
    const home = { x: homeOf(bins.map((row) => row.bin), bins.map((row) => row.bin + data.width), events.map((event) => event.at)) };
    const oddText = (event) => [
      `${event.count > 1 ? `${count(event.count)} × ` : ""}${words(event.kind)}, ${words(event.confidence)} (${words(event.method)})`,
      `${time(event.at)}, ${plain(event.topic)}-${event.partition}`,
      !event.isTold ? "" : `from ${event.from_offset === null ? "-" : count(event.from_offset)} to ${event.to_offset === null ? "-" : count(event.to_offset)}`,
      (event.owner_member_id ?? null) === null ? "" : `owner ${plain(event.owner_member_id, 70)}`,
      event.likely_cause === null ? "" : `likely: ${words(event.likely_cause)}`,
    ].filter(Boolean).join("<br>");
    return new Chart(figure, (view, size, own) => {
      const seen = bins.filter((row) => row.bin + data.width >= view.x[0] && row.bin <= view.x[1]);
      const step = data.width * Math.max(1, Math.ceil((view.x[1] - view.x[0]) / data.width / 160));
      const merged = new Map();
      for (const row of seen) {
        const at = Math.floor(row.bin / step) * step;
        const old = merged.get(at) ?? [0, 0];
        merged.set(at, [old[0] + row.commits, old[1] + row.moved_ahead]);
      }
      const all = [...merged].sort((a, b) => a[0] - b[0]);
      const laneHeight = lanes.length ? lanes.length * LANE_HEIGHT + 22 : 0;
      const lagHeight = lags.length ? 130 : 0;
      const total = own.place.clientHeight - 60;
      const marks = laneTrace(events, lanes, view, (event) => (event.went_back || event.kind === "DELETED" ? ALARM : css("--ink")), oddText);
      const traces = [{
        type: "bar", x: all.map(([at]) => at + step / 2), width: step * 0.9, y: all.map(([, [, ahead]]) => ahead), marker: { color: PALETTE[0] },
        text: all.map(([at, [commits, ahead]]) => `${clock(at, view.x[1] - view.x[0])}, ${duration(step)}<br>${several(commits, "commit")}<br>${count(ahead)} offsets ahead`),
        textposition: "none", hovertemplate: "%{text}<extra></extra>",
      }];
      if (lanes.length) traces.push({ ...marks.trace, xaxis: "x", yaxis: "y2" });
      if (lags.length) {
        const bounds = { type: "scatter", mode: "lines", xaxis: "x", yaxis: "y3", x: lags.map((row) => row.bin), line: { color: PALETTE[1], width: 1, dash: "dot" }, hoverinfo: "skip" };
        traces.push({ ...bounds, y: lags.map((row) => row.lag_min) });
        traces.push({ ...bounds, y: lags.map((row) => row.lag_max), fill: "tonexty", fillcolor: "rgba(230,159,0,0.18)" });
        traces.push({ type: "scatter", mode: "lines+markers", xaxis: "x", yaxis: "y3", x: lags.map((row) => row.bin), y: lags.map((row) => row.lag), line: { color: PALETTE[1], width: 2 }, marker: { size: 5 }, connectgaps: false,
          text: lags.map((row) => `${clock(row.bin, view.x[1] - view.x[0])}<br>lag ${row.lag === null ? "not known" : count(Math.round(row.lag))}<br>between ${row.lag_min === null ? "?" : count(row.lag_min)} and ${row.lag_max === null ? "?" : count(row.lag_max)}`),
          hovertemplate: "%{text}<extra></extra>" });
      }
      const [bottom, middle] = [(total - laneHeight - lagHeight) / total, (total - lagHeight) / total];
      return {
        traces,
        layout: layoutOf(own, {
          xaxis: timeAxis(view, { anchor: "y" }),
          yaxis: axis({ domain: [0, bottom - 0.02], rangemode: "tozero", title: titled("offsets ahead"), fixedrange: true, nticks: 5 }),
          ...(lanes.length ? { yaxis2: laneAxis(lanes.map(words), [bottom + 0.01, middle - 10 / total]) } : {}),
          ...(lags.length ? { yaxis3: axis({ domain: [middle + 0.03, 1], rangemode: "tozero", title: titled("lag"), fixedrange: true, nticks: 4 }) } : {}),
          shapes: holeShapes(data.holes, view, { ...size, height: total }),
        }),
        reading: `${several(all.reduce((sum, [, [commits]]) => sum + commits, 0), "commit")}, ${count(all.reduce((sum, [, [, ahead]]) => sum + ahead, 0))} offsets ahead, ${several(countOf(marks.seen), "commit anomaly", "commit anomalies")}. A bar is ${duration(step)}.`,
      };
    }, home);
  };

  DRAW.drawMembers = (figure, data, listings) => {
    const { came, went } = data.flow;
    const moments = sums(data.flow.at);
    const members = recordsOf(listings[0]);
    let there = 0;
    const line = moments.map((at, index) => [at, (there += came[index] - went[index])]);
    const home = { x: homeOf(moments) };
    if (there) home.x[1] = Math.max(home.x[1], facts.to);
    return new Chart(figure, (view, size, own) => {
      const width = (view.x[1] - view.x[0]) / 120;
      const bins = (counts) => {
        const found = new Map();
        moments.forEach((at, index) => {
          if (!counts[index] || at < view.x[0] || at > view.x[1]) return;
          const place = Math.floor((at - view.x[0]) / width);
          found.set(place, (found.get(place) ?? 0) + counts[index]);
        });
        return [...found];
      };
      const [joined, left] = [bins(came), bins(went)];
      const seen = members.filter((row) => row.valid_from < view.x[1] && (row.valid_to ?? facts.to) > view.x[0]);
      const shown = seen.slice(0, 30);
      const before = line.filter(([at]) => at < view.x[0]).at(-1)?.[1] ?? 0;
      const inside = line.filter(([at]) => at >= view.x[0] && at <= view.x[1]);
      const stepLine = [[view.x[0], before], ...inside, [Math.min(view.x[1], facts.to), inside.at(-1)?.[1] ?? before]];
      const total = own.place.clientHeight - 48;
      const split = 1 - 130 / total;
      const flow = (bin, sign, noun, colour) => ({
        type: "bar", x: bin.map(([place]) => view.x[0] + (place + 0.5) * width), y: bin.map(([, value]) => sign * value), width: width * 0.9, marker: { color: colour },
        text: bin.map(([place, value]) => `${several(value, "member")} ${noun}<br>${clock(view.x[0] + place * width, view.x[1] - view.x[0])}, ${duration(width)}`), textposition: "none", hovertemplate: "%{text}<extra></extra>",
      });
      return {
        traces: [
          flow(joined, 1, "came", PALETTE[2]), flow(left, -1, "went", ALARM),
          { type: "scatter", mode: "lines", x: stepLine.map(([at]) => at), y: stepLine.map(([, value]) => value), line: { shape: "hv", color: css("--ink"), width: 1.5 }, hovertemplate: "%{y} members<br>%{x}<extra></extra>" },
          { type: "bar", orientation: "h", xaxis: "x", yaxis: "y2", base: shown.map((row) => row.valid_from), x: shown.map((row) => (row.valid_to ?? facts.to) - row.valid_from), y: shown.map((_, index) => index), width: 0.7,
            marker: { color: shown.map((row) => (row.valid_to === null ? PALETTE[0] : CALM)) },
            text: shown.map((row) => `${plain(row.client_id ?? row.member_id)}<br>member ${plain(row.member_id, 70)}<br>from ${plain(row.client_host)}${row.instance_id === null ? "" : `<br>instance ${plain(row.instance_id)}`}<br>${time(row.valid_from)}<br>${row.valid_to === null ? "still there" : `${time(row.valid_to)}, ${words(row.ended_by)}`}`),
            textposition: "none", hovertemplate: "%{text}<extra></extra>" },
        ],
        layout: layoutOf(own, {
          barmode: "relative",
          xaxis: timeAxis(view, { anchor: "y2" }),
          yaxis: axis({ domain: [split + 0.02, 1], title: titled("members"), fixedrange: true, nticks: 5, dtick: line.every(([, value]) => value <= 4) ? 1 : undefined, zeroline: true, zerolinecolor: css("--line") }),
          yaxis2: laneAxis(shown.map((row) => row.client_id || row.instance_id || row.member_id), [0, split - 14 / total], { showgrid: false }),
          shapes: holeShapes(data.holes, view, { ...size, height: total }),
        }),
        reading: `${several(joined.reduce((sum, [, value]) => sum + value, 0), "member")} came (green), ${count(left.reduce((sum, [, value]) => sum + value, 0))} went (orange). Line: members at the time.${seen.length > shown.length ? ` The first ${shown.length} of ${count(seen.length)} stretches${listings[0].rowCount > listings[0].shown ? " in the table" : ""} are drawn below it; zoom in to see others.` : ""}`,
      };
    }, home);
  };

  const STATE_COLOURS = { AVAILABLE: ["#A9D5F2", "#56B4E9", "#0072B2", "#004C78"], ACKNOWLEDGED: ["#009E73"], ARCHIVING: ["#E69F00"], ARCHIVED: ["#D55E00"] };
  const STATE_WORDS = { AVAILABLE: "available again", ACKNOWLEDGED: "acknowledged", ARCHIVING: "archiving", ARCHIVED: "given up" };
  // What there is to tell apart, by how bad it is: acknowledged, available again by how often it was delivered, given up
  const SHADES = ["ACKNOWLEDGED", "AVAILABLE", "ARCHIVING", "ARCHIVED"].flatMap((state) => STATE_COLOURS[state].map((colour, index, all) => ({
    state, colour, times: all.length === 1 ? "" : `${index + 1}×${index === all.length - 1 ? " or more" : ""}`,
  })));
  const shadeOf = (state, deliveries) => {
    const own = SHADES.findIndex((shade) => shade.state === state);
    return own + Math.min(Math.max(deliveries - 1, 0), STATE_COLOURS[state].length - 1);
  };

  DRAW.drawStates = (figure, data) => {
    const partitions = data.partitions.map((partition) => {
      const [firsts, lasts, starts] = [sums(partition.firsts), sums(partition.lasts), sums(partition.starts)];
      const stops = starts.map((start, index) => (partition.lengths[index] === OPEN ? facts.to : start + partition.lengths[index]));
      const [stepTimes, stepStarts, stepEffective] = [sums(partition.stepTimes), sums(partition.stepStarts), sums(partition.stepEffective)];
      const lows = firsts.concat(stepStarts.filter((offset) => offset >= 0));
      let [low, high] = [Infinity, -Infinity];
      for (const offset of lows) low = Math.min(low, offset);
      for (const offset of lasts.concat(stepStarts)) high = Math.max(high, offset);
      if (low > high) [low, high] = [0, 1];
      const room = Math.max((high - low) * 0.03, 1);
      // what is as it was at the end goes on to the end of the report: of that a little is enough
      const x = homeOf(starts, stops.filter((_, index) => partition.lengths[index] !== OPEN), stepTimes);
      const home = { x: [x[0], Math.min(x[1] + (x[1] - x[0]) / 10, Math.max(x[1], facts.to))], y: [low - room, high + 1 + room], yaxis: "yaxis" };
      return { ...partition, firsts, lasts, starts, stops, stepTimes, stepStarts, stepEffective, home };
    });
    let chosen = partitions[0];
    const shade = (index) => shadeOf(data.states[chosen.states[index]], chosen.counts[index]);
    const text = (index) => [
      `${STATE_WORDS[data.states[chosen.states[index]]]}, delivery count ${chosen.counts[index]}`,
      `offsets ${count(chosen.firsts[index])} to ${count(chosen.lasts[index])}`,
      time(chosen.starts[index]), chosen.lengths[index] === OPEN ? "still" : time(chosen.stops[index]),
      chosen.together[index] > 1 ? `${count(chosen.together[index])} stretches, drawn as one` : "",
      chosen.sure[index] ? "" : "not certain: the log began midway",
    ].filter(Boolean).join("<br>");

    function rectangles(found) {
      return SHADES.map(({ state, colour }, number) => {
        const own = found.filter((index) => shade(index) === number);
        return {
          type: "bar", orientation: "h", name: STATE_WORDS[state], base: own.map((index) => chosen.starts[index]), x: own.map((index) => chosen.stops[index] - chosen.starts[index]),
          y: own.map((index) => (chosen.firsts[index] + chosen.lasts[index] + 1) / 2), width: own.map((index) => chosen.lasts[index] - chosen.firsts[index] + 1),
          marker: { color: colour, line: { width: 0.4, color: css("--paper") },
            // not fillmode "overlay": Plotly would ask for the contrast of all colours at once, and complain
            pattern: { shape: own.map((index) => (chosen.sure[index] ? "" : "/")), fgcolor: css("--paper"), fillmode: "replace", solidity: 0.3, size: 7, bgcolor: colour } },
          text: own.map(text), textposition: "none", hovertemplate: "%{text}<extra></extra>", showlegend: false,
        };
      });
    }

    // The colours that are to be seen, each in words
    function keys(found) {
      const seen = new Set(found.map(shade));
      return SHADES.map(({ state, times, colour }, number) => ({
        type: "scatter", mode: "markers", name: times ? `${isSmall() ? "available" : STATE_WORDS[state]}, ${times}` : STATE_WORDS[state], x: [null], y: [null], marker: { symbol: "square", size: 11, color: colour },
        hoverinfo: "skip", showlegend: true, visible: seen.has(number),
      }));
    }

    function cells(found, view) {
      const [columnCount, rowCount] = [160, 90];
      const [low, high] = ends(view.y);
      const [width, height] = [(view.x[1] - view.x[0]) / columnCount, (high - low) / rowCount];
      // the worst state in a cell is the one to see: given up, archiving, available again (by count), acknowledged
      const z = Array.from({ length: rowCount }, () => new Array(columnCount).fill(null));
      const worst = Array.from({ length: rowCount }, () => new Array(columnCount).fill(-1));
      const clamp = (value, most) => Math.min(Math.max(Math.floor(value), 0), most - 1);
      for (const index of found) {
        const value = shade(index);
        const [r0, r1] = [clamp((chosen.firsts[index] - low) / height, rowCount), clamp((chosen.lasts[index] - low) / height, rowCount)];
        const [c0, c1] = [clamp((chosen.starts[index] - view.x[0]) / width, columnCount), clamp((chosen.stops[index] - view.x[0]) / width, columnCount)];
        for (let row = r0; row <= r1; row += 1) {
          for (let column = c0; column <= c1; column += 1) {
            if (z[row][column] === null || value > z[row][column]) [z[row][column], worst[row][column]] = [value, index];
          }
        }
      }
      return [{
        type: "heatmap", x0: view.x[0] + width / 2, dx: width, y0: low + height / 2, dy: height, z, zmin: -0.5, zmax: SHADES.length - 0.5, showscale: false, hoverongaps: false,
        colorscale: SHADES.flatMap(({ colour }, index) => [[index / SHADES.length, colour], [(index + 1) / SHADES.length, colour]]),
        text: worst.map((line) => line.map((index) => (index < 0 ? "" : `worst here: ${text(index)}`))), hovertemplate: "%{text}<br>click to see more<extra></extra>",
        customdata: worst.map((line, row) => line.map((_, column) => ({ zoom: { x: [view.x[0] + (column - 4) * width, view.x[0] + (column + 5) * width], y: [low + (row - 4) * height, low + (row + 5) * height] } }))),
      }];
    }

    const chart = new Chart(figure, (view, size, own) => {
      const [low, high] = ends(view.y);
      const found = [];
      for (let index = 0; index < chosen.starts.length; index += 1) {
        if (chosen.starts[index] < view.x[1] && chosen.stops[index] > view.x[0] && chosen.firsts[index] <= high && chosen.lasts[index] >= low) found.push(index);
      }
      const isExact = found.length <= BARS_MAX;
      const times = [...chosen.stepTimes, facts.to];
      const held = (offsets) => [...offsets, offsets.at(-1)].map((offset) => (offset < 0 ? null : offset));
      const step = { type: "scatter", mode: "lines", x: times, line: { shape: "hv", color: css("--ink"), width: isExact ? 2 : 1.25 } };
      return {
        traces: [
          ...(isExact ? rectangles(found) : cells(found, view)),
          ...keys(found),
          { ...step, name: "start offset", y: held(chosen.stepStarts), hovertemplate: "start offset %{y:,}<br>%{x}<extra></extra>" },
          { ...step, name: isSmall() ? "at least" : "start offset, at least", y: held(chosen.stepEffective), line: { ...step.line, dash: "dot", width: 1.5 }, hovertemplate: "start offset at least %{y:,}<br>%{x}<extra></extra>" },
        ],
        layout: layoutOf(own, {
          barmode: "overlay", bargap: 0, showlegend: true,
          legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: isSmall() ? -0.2 : 0, font: { size: isSmall() ? 11 : 12, color: css("--soft") }, itemclick: false, itemdoubleclick: false },
          margin: { l: isSmall() ? 64 : 90, r: isSmall() ? 8 : 20, t: isSmall() ? 104 : 60, b: 38 },
          xaxis: timeAxis(view),
          yaxis: axis({ range: view.y, title: titled("offset"), tickformat: ",d" }),
          shapes: holeShapes(data.holes, view, { ...size, height: 380 }),
        }),
        reading: `${chosen.name}: ${several(found.length, "stretch").replace("stretchs", "stretches")} of delivery states.${isExact ? "" : " Counted together: each cell shows the worst state in it. Zoom in to see each."}`,
      };
    }, structuredClone(chosen.home));
    if (partitions.length > 1) {
      figure.querySelector(".controls").prepend(choice("Share partition", partitions.map((partition, index) => [index, cut(partition.name, 60)]), (value) => {
        chosen = partitions[Number(value)];
        chart.home = { ...chosen.home, x: chart.home.x };
        chart.show({ ...chart.home, x: chart.view.x });
      }));
    }
    return chart;
  };

  DRAW.drawEvents = (figure, data) => {
    const rangesOf = (marks, prefix) => eventsOf(marks).map((event) => ({
      ...event, prefix, lane: `${prefix}: ${words(event.cause)}`, size: Math.min(8 + 3 * Math.log2(event.offsets), 26),
    }));
    const events = [...rangesOf(data.archived, "given up"), ...rangesOf(data.redelivered, "again")];
    const lanes = [...new Set(events.map((event) => event.lane))].sort().reverse();
    const home = { x: homeOf(events.map((event) => event.at)) };
    const text = (event) => [
      `${event.lane}, ${words(event.confidence)} (${words(event.method)})`, event.likely_cause === null ? "" : `likely: ${words(event.likely_cause)}`,
      `${plain(event.topic)}-${event.partition}, ${event.count > 1 ? `${count(event.count)} ranges from offset ${count(event.first)} on`
        : `offsets ${count(event.first)} to ${count(event.first + event.offsets - 1)}`}`, `${several(event.offsets, "record")}`, time(event.at),
    ].filter(Boolean).join("<br>");
    return new Chart(figure, (view, size, own) => {
      const marks = laneTrace(events, lanes, view, (event) => (event.prefix === "given up" ? ALARM : PALETTE[0]), text);
      const total = lanes.length * 30 + 20;
      const offsets = (prefix) => marks.seen.filter((event) => event.prefix === prefix).reduce((sum, event) => sum + event.offsets, 0);
      return {
        traces: [marks.trace],
        layout: layoutOf(own, { xaxis: timeAxis(view), yaxis: laneAxis(lanes, [0, 1]), shapes: holeShapes(data.holes, view, { ...size, height: total }) }),
        reading: `${several(offsets("given up"), "record")} given up, ${count(offsets("again"))} handed back or given out again.`,
      };
    }, home);
  };

  DRAW.drawCounts = (figure, data, listings) => {
    const rows = recordsOf(listings[0]);
    const most = Math.max(...rows.map((row) => row.delivery_count ?? 0));
    // counts between, at which nothing ended, have their places, too
    const between = most <= 50 ? Array.from({ length: most }, (_, index) => String(index + 1)) : [];
    const places = [...new Set([...rows.map((row) => String(row.delivery_count ?? "not known")), ...between])]
      .sort((a, b) => (Number.isNaN(Number(a)) ? -1 : Number.isNaN(Number(b)) ? 1 : a - b));
    const values = rows.flatMap((row) => [row.acknowledged, row.archived]).filter((value) => value > 0);
    let isLog = values.length > 1 && Math.max(...values) / Math.min(...values) > 50;
    const chart = new Chart(figure, (view, size, own) => ({
      traces: [["acknowledged", "acknowledged", STATE_COLOURS.ACKNOWLEDGED[0]], ["archived", "given up", STATE_COLOURS.ARCHIVED[0]]].map(([name, title, shade]) => ({
        type: "bar", name: title, x: rows.map((row) => String(row.delivery_count ?? "not known")), y: rows.map((row) => row[name] || null), marker: { color: shade },
        text: rows.map((row) => (row[name] ? count(row[name]) : "")), textposition: "outside", cliponaxis: false, textfont: { color: css("--ink") },
        hovertemplate: `%{y:,} records ${title}<br>at delivery count %{x}<extra></extra>`,
      })),
      layout: layoutOf(own, {
        barmode: "group", showlegend: true, dragmode: false, legend: { orientation: "h", y: 1.05, yanchor: "bottom", x: 0, font: { color: css("--soft") } },
        margin: { l: isSmall() ? 64 : 90, r: 20, t: 50, b: 48 },
        xaxis: axis({ type: "category", title: titled("delivery count"), fixedrange: true, showgrid: false, categoryarray: places }),
        yaxis: axis({ type: isLog ? "log" : "linear", title: titled(isLog ? "records, log scale" : "records"), fixedrange: true, dtick: isLog ? 1 : undefined, nticks: 6, tickformat: isLog ? undefined : "," }),
      }),
    }));
    const toggle = button("Log scale", () => {
      isLog = !isLog;
      toggle.setAttribute("aria-pressed", String(isLog));
      chart.draw();
    }, { "aria-pressed": String(isLog) });
    figure.querySelector(".controls").append(toggle);
    return chart;
  };

  // --- the page

  // A picture as a file, with its title and the colours of its members: Plotly's SVG, or that as a PNG in twice the size
  async function save({ figure, place }, kind) {
    const title = [figure.closest("section").querySelector(".group"), figure.querySelector("h3")].filter(Boolean).map((it) => it.textContent).join(": ");
    const names = [...figure.querySelectorAll(".legend li:not(.muted)")].map((it) =>
      `<span style="color:${getComputedStyle(it.firstChild).backgroundColor}">■</span> ${plain(it.textContent, LABEL_CHARACTERS)}`);
    const lines = [plain(title, 120)];
    for (let index = 0; index < names.length; index += 4) lines.push(names.slice(index, index + 4).join("  "));
    const [above, { data, layout }] = [14 + 20 * lines.length, place];
    const [width, height] = [place.clientWidth, place.clientHeight + above];
    const svg = await Plotly.toImage({ data, layout: { ...layout, height, paper_bgcolor: css("--paper"), margin: { ...layout.margin, t: layout.margin.t + above },
      title: { text: lines.join("<br>"), x: 0, xanchor: "left", y: 1, yref: "container", yanchor: "top", pad: { t: 5 + 5 * lines.length, l: 10 }, font: { size: 13 } } } },
    { format: "svg", width, height, imageDataOnly: true });
    let file = new Blob([svg], { type: "image/svg+xml" });
    if (kind === "PNG") {
      const [image, canvas] = [new Image(), element("canvas", { width: 2 * width, height: 2 * height })];
      image.src = `data:image/svg+xml,${encodeURIComponent(svg)}`;
      await image.decode();
      canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
      file = await new Promise((resolve) => { canvas.toBlob(resolve); });
    }
    const link = element("a", { href: URL.createObjectURL(file), download: `${title.replace(/[^\p{L}\p{N}]+/gu, "-")}.${kind.toLowerCase()}` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  }

  const FROM_VIEW = (figure) => {
    const { top, bottom } = figure.getBoundingClientRect();
    return Math.max(top - window.innerHeight, -bottom, 0);
  };

  // One at a time, those in view first
  async function drawAll(figures) {
    for (const left = new Set(figures); left.size;) {
      await new Promise((resolve) => { setTimeout(resolve); });
      const next = [...left].reduce((a, b) => (FROM_VIEW(b) < FROM_VIEW(a) ? b : a));
      left.delete(next);
      await open(next);
    }
  }

  // A screenshot or a print is made of a page when it is loaded: it is not while a frame in it is being written
  function holdLoad() {
    const frame = element("iframe", { hidden: "" });
    document.body.append(frame);
    frame.contentDocument.open();
    return frame;
  }

  async function open(figure) {
    const picture = await inflated(scriptJson(`${figure.id}-data`));
    if (picture.draws) await loadLibrary();
    const chart = picture.draws ? DRAW[picture.draws](figure, picture.data, picture.listings) : null;
    figure.querySelectorAll(".listing").forEach((details) => {
      const listing = picture.listings[Number(details.dataset.listing)];
      const index = listing.columns.findIndex((column) => column.kind === "time");
      const onTime = chart?.home?.x && index >= 0 ? { index, show: (at) => chart.around(at) } : null;
      new Table(details, listing, onTime);
    });
    if (chart) {
      const files = ["PNG", "SVG"].map((kind) => button(kind, () => save(chart, kind), { "aria-label": `Save as ${kind}`, title: `Save as ${kind}` }));
      figure.querySelector(".controls").append(...files);
      await chart.draw();
    } else figure.dataset.drawn = "0";
  }

  // --- to find a group

  const permalink = (groupId) => `#group=${encodeURIComponent(groupId.toWellFormed?.() ?? groupId)}`;
  let groups = [];

  // How well a name fits what was typed, the best first: it is it, begins with it, has a word that begins with it (or is
  // that number), has it somewhere, or has its characters in this order, as initials; null: it does not fit
  function fit(group, typed) {
    const { lower, parts } = group;
    if (lower === typed) return 0;
    if (lower.startsWith(typed)) return 1;
    if (parts.some((part) => part === typed || part.replace(/^0+(?=\d)/, "") === typed)) return 2;
    if (parts.some((part) => part.startsWith(typed))) return 3;
    if (parts.length > 1 && parts.map((part) => part[0]).join("").includes(typed)) return 4;
    if (lower.includes(typed)) return 5;
    let at = -1;
    for (const character of typed) {
      at = lower.indexOf(character, at + 1);
      if (at < 0) return null;
    }
    return 6;
  }

  function findGroups(text) {
    const typed = text.trim().toLowerCase().split(/\s+/).filter(Boolean);
    const fitting = [];
    for (const group of groups) {
      let worst = 0;
      for (const part of typed) {
        const how = fit(group, part);
        worst = how === null ? null : Math.max(worst, how);
        if (worst === null) break;
      }
      if (worst !== null) fitting.push([worst, group]);
    }
    // stable: groups come in the order of the directory, the worst first
    return fitting.sort((a, b) => a[0] - b[0] || (typed.length ? a[1].lower.length - b[1].lower.length : 0)).map(([, group]) => group);
  }

  const FOUND_MAX = 100;

  function addFinder() {
    const [finder, wanted, list, status] = ["finder", "wanted", "found", "found-count"].map((id) => document.getElementById(id));
    let [found, chosen] = [[], 0];
    const choose = (index) => {
      list.children[chosen]?.setAttribute("aria-selected", "false");
      chosen = Math.min(Math.max(index, 0), list.children.length - 1);
      const item = list.children[chosen];
      if (!item) { wanted.removeAttribute("aria-activedescendant"); return; }
      item.setAttribute("aria-selected", "true");
      wanted.setAttribute("aria-activedescendant", item.id);
      item.scrollIntoView({ block: "nearest" });
    };
    const go = (index) => {
      if (!found[index]) return;
      finder.close();
      goTo(permalink(found[index].name));
    };
    const show = () => {
      found = findGroups(wanted.value);
      list.replaceChildren(...found.slice(0, FOUND_MAX).map((group, index) => {
        const item = element("li", { role: "option", id: `found-${index}`, "aria-selected": "false" });
        item.append(element("span", { class: "name" }, cut(group.name, 200)), element("span", { class: "kind" }, words(group.type)));
        if (group.verdict) item.append(element("span", { class: `verdict ${group.verdict.toLowerCase()}` }, group.verdict));
        item.addEventListener("click", () => go(index));
        return item;
      }));
      status.textContent = `${several(found.length, "group")}${found.length > FOUND_MAX ? `, the first ${FOUND_MAX} here: type on` : ""}`;
      chosen = 0;
      choose(0);
    };
    const open = () => {
      if (finder.open) return;
      wanted.value = "";
      finder.showModal();
      show();
      wanted.focus();
    };
    wanted.addEventListener("input", show);
    wanted.addEventListener("keydown", (event) => {
      const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 };
      if (event.key in moves) choose(chosen + moves[event.key]);
      else if (event.key === "Enter") go(chosen);
      else return;
      event.preventDefault();
    });
    finder.addEventListener("click", (event) => { if (event.target === finder) finder.close(); });
    document.getElementById("find").addEventListener("click", open);
    document.addEventListener("keydown", (event) => {
      const field = event.target.closest?.("input, select, textarea");
      // the field of the closed dialog keeps the focus until the page is painted again
      const isTyping = field && (field !== wanted || finder.open);
      const isAsked = (event.key === "/" && !isTyping) || (event.key === "k" && (event.ctrlKey || event.metaKey));
      if (!isAsked) return;
      event.preventDefault();
      open();
    });
  }

  // All groups, by type and by verdict
  function addDirectory() {
    const section = document.getElementById("directory");
    const listing = facts.directory;
    const cells = Object.fromEntries(listing.columns.map((column) => [column.name, cellsOf(column)]));
    groups = cells.group_id.map((name, index) => {
      const lower = name.toLowerCase();
      return { name, lower, parts: lower.split(/[^\p{L}\p{N}]+/u).filter(Boolean), type: cells.type[index], verdict: cells.verdict[index], index };
    });
    const table = new Table(section, listing, null);
    const chosen = { type: null, verdict: null };
    const chips = section.querySelector(".chips");
    for (const name of ["verdict", "type"]) {
      const counts = new Map();
      for (const value of cells[name]) if (value !== null) counts.set(value, (counts.get(value) ?? 0) + 1);
      if (counts.size < 2) continue;
      for (const [value, number] of counts) {
        const chip = button(`${name === "verdict" ? value : words(value)} ${count(number)}`, () => {
          chosen[name] = chosen[name] === value ? null : value;
          chips.querySelectorAll(`[data-name="${name}"]`).forEach((other) => other.setAttribute("aria-pressed", String(other.dataset.value === chosen[name])));
          table.only((row) => (chosen.type ?? cells.type[row]) === cells.type[row] && (chosen.verdict ?? cells.verdict[row]) === cells.verdict[row]);
        }, { "aria-pressed": "false" });
        chip.dataset.name = name;
        chip.dataset.value = value;
        chips.append(chip);
      }
    }
    if (listing.shown < listing.rowCount) chips.append(element("span", { class: "muted" }, `the first ${count(listing.shown)} of ${count(listing.rowCount)} groups`));
  }

  const quoted = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`);

  // A group without pictures: what is known of it, and the command that draws it
  function showGroup(name) {
    const section = document.getElementById("one-group");
    const group = groups.find((it) => it.name === name);
    section.hidden = false;
    section.querySelector("h2").textContent = cut(name, 120);
    const rows = group ? facts.directory.columns.slice(1).map((column) => [column, cellsOf(column)[group.index]]).filter(([, value]) => value !== null) : [];
    section.querySelector("dl").replaceChildren(...rows.map(([column, value]) => {
      const tile = element("div", { class: "tile" });
      tile.append(element("dt", {}, heading(column.name)), element("dd", {}, FORMATS[column.kind](value)));
      return tile;
    }));
    section.querySelector("p").textContent = group ? "This report has no pictures of it. It gets a report of its own with:"
      : "No group of this name is in this report.";
    section.querySelector(".code").hidden = !group;
    section.querySelector("code").textContent = facts.command[0] + quoted(name) + facts.command[1];
    section.scrollIntoView({ block: "start" });
    section.focus({ preventScroll: true });
  }

  function route() {
    const { hash } = window.location;
    if (!hash.startsWith("#group=")) return;
    let name = hash.slice("#group=".length);
    try { name = decodeURIComponent(name); } catch { return; }
    const section = Object.hasOwn(facts.anchors, name) ? document.getElementById(facts.anchors[name]) : null;
    document.getElementById("one-group").hidden = true;
    if (section === null) { showGroup(name); return; }
    section.scrollIntoView({ block: "start" });
  }

  function goTo(hash) {
    if (window.location.hash === hash) route();
    else window.location.hash = hash;
  }

  function addCopying() {
    document.addEventListener("click", async (event) => {
      const copy = event.target.closest?.(".copy");
      if (!copy) return;
      const code = copy.parentElement.querySelector("code");
      let isDone = true;
      try {
        await navigator.clipboard.writeText(code.textContent);
      } catch {
        window.getSelection().selectAllChildren(code);
        isDone = document.execCommand("copy");
      }
      copy.textContent = isDone ? "Copied" : "Press Ctrl+C";
      setTimeout(() => { copy.textContent = "Copy"; }, 2000);
    });
  }

  function setTheme(theme) {
    root.dataset.theme = theme;
    const toggle = document.getElementById("theme");
    toggle.textContent = theme === "dark" ? "Light" : "Dark";
    toggle.setAttribute("aria-label", `Use ${theme === "dark" ? "light" : "dark"} colours`);
    charts.filter((chart) => chart.isDrawn).forEach((chart) => chart.drawAnew());
  }

  async function begin() {
    const dark = window.matchMedia("(prefers-color-scheme: dark)");
    setTheme(dark.matches ? "dark" : "light");
    dark.addEventListener("change", () => setTheme(dark.matches ? "dark" : "light"));
    document.getElementById("theme").addEventListener("click", () => setTheme(root.dataset.theme === "dark" ? "light" : "dark"));
    addCopying();
    facts = await inflated(scriptJson("facts"));
    addDirectory();
    addFinder();
    window.addEventListener("hashchange", route);
    let resized = null;
    window.addEventListener("resize", () => {
      clearTimeout(resized);
      resized = setTimeout(() => setTheme(root.dataset.theme), 200);
    });
    route();
    let before = null;
    window.addEventListener("beforeprint", () => {
      [before, paperWidth] = [root.dataset.theme, PAPER_WIDTH];
      setTheme("light");
    });
    window.addEventListener("afterprint", () => {
      paperWidth = null;
      setTheme(before);
    });
    await drawAll(document.querySelectorAll("figure.picture"));
  }

  const held = holdLoad();
  begin().finally(() => held.remove());
})();
