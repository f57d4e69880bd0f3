'use strict';
// The graph of layers: placed by edgekit, moved by mouse, touch and keys.
for (const root of document.querySelectorAll('.graph')) {
  const graph = pictures[root.dataset.part].graph;
  const svg = root.querySelector('svg');
  const aside = root.querySelector('aside');
  const make = (name, attributes, parent) => {
    const made = parent.appendChild(document.createElementNS('http://www.w3.org/2000/svg', name));
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  };
  const near = graph.nodes.map(() => ({ above: [], below: [], edges: [] }));
  const edges = graph.edges.map((edge, number) => {
    near[edge.start].below.push(edge.end);
    near[edge.end].above.push(edge.start);
    for (const end of [edge.start, edge.end]) near[end].edges.push(number);
    return make('path', { class: 'edge', d: edge.path }, svg);
  });
  const most = Math.max(...graph.nodes.map((node) => node.share), 1e-9);
  const nodes = graph.nodes.map((node, number) => {
    const at = { class: 'node', role: 'button', tabindex: number ? -1 : 0, transform: `translate(${node.x} ${node.y})` };
    const group = make('g', { ...at, 'aria-pressed': 'false' }, svg);
    const owner = `owner-${graph.owners.indexOf(node.owner) % 7}`;
    make('rect', { class: 'box', width: node.width, height: node.height, rx: 6 }, group);
    make('rect', { class: owner, width: 7, height: node.height, rx: 3 }, group);
    if (node.share > 0) {
      const width = Math.max(2, (node.width - 20) * node.share / most);
      make('rect', { class: owner, x: 14, y: node.height - 7, width, height: 4 }, group);
    }
    [node.title, ...node.lines].forEach((text, line) => {
      const words = make('text', { x: 16, y: 19 + 17 * line, class: line ? '' : 'first' }, group);
      words.textContent = text;
      group.append(' ');
    });
    group.addEventListener('click', () => { if (!moved) choose(number); });
    group.addEventListener('focus', () => { if (group.matches(':focus-visible')) show(number); });
    return group;
  });

  // What is seen is the view box: x, y and the scale in pixels for each unit.
  let view = { x: 0, y: 0, scale: 1 };
  const size = () => svg.getBoundingClientRect();
  const apply = () => {
    const { width, height } = size();
    svg.setAttribute('viewBox', `${view.x} ${view.y} ${width / view.scale} ${height / view.scale}`);
  };
  const fit = () => {
    const { width, height } = size();
    const scale = Math.min(width / graph.width, height / graph.height, 1.2);
    view = { scale, x: (graph.width - width / scale) / 2, y: (graph.height - height / scale) / 2 };
    apply();
  };
  const start = () => { // readable, at the top
    const { width, height } = size();
    const scale = Math.max(Math.min(width / graph.width, height / graph.height, 1.2), 0.85);
    const first = graph.nodes[0];
    view = { scale, x: first.x + first.width / 2 - width / scale / 2, y: -8 };
    if (height / scale > graph.height) view.y = (graph.height - height / scale) / 2;
    apply();
  };
  const zoom = (factor, at) => {
    const box = size();
    const point = at ?? { x: box.width / 2, y: box.height / 2 };
    const scale = Math.min(8, Math.max(0.02, view.scale * factor));
    view.x += point.x / view.scale - point.x / scale;
    view.y += point.y / view.scale - point.y / scale;
    view.scale = scale;
    apply();
  };
  const show = (number) => { // moves only if the layer is not in sight
    const { width, height } = size();
    const node = graph.nodes[number];
    const inside = node.x >= view.x && node.y >= view.y &&
      node.x + node.width <= view.x + width / view.scale && node.y + node.height <= view.y + height / view.scale;
    if (inside) return;
    view.scale = Math.max(view.scale, 0.7);
    view.x = node.x + node.width / 2 - width / view.scale / 2;
    view.y = node.y + node.height / 2 - height / view.scale / 2;
    apply();
  };

  let chosen = -1;
  const choose = (number) => {
    const mark = (on) => {
      if (chosen < 0) return;
      nodes[chosen].classList.toggle('chosen', on);
      nodes[chosen].setAttribute('aria-pressed', String(on));
      nodes[chosen].setAttribute('tabindex', on ? 0 : -1);
      for (const edge of near[chosen].edges) edges[edge].classList.toggle('near', on);
    };
    nodes[0].setAttribute('tabindex', -1);
    mark(false);
    chosen = number;
    mark(true);
    const node = graph.nodes[number];
    const head = document.createElement('h3');
    head.textContent = node.title;
    const list = document.createElement('dl');
    for (const [name, value] of node.facts) {
      const row = list.appendChild(document.createElement('div'));
      row.appendChild(document.createElement('dt')).textContent = name;
      row.appendChild(document.createElement('dd')).textContent = value;
    }
    aside.replaceChildren(head, list);
  };
  const go = (number) => {
    if (number === undefined) return;
    choose(number);
    show(number);
    nodes[number].focus({ preventScroll: true });
  };
  const beside = (number, step) => { // the neighbour in the same row
    const own = graph.nodes[number];
    const row = graph.nodes.map((node, place) => place).filter((place) => graph.nodes[place].y === own.y)
      .sort((a, b) => graph.nodes[a].x - graph.nodes[b].x);
    return row[row.indexOf(number) + step];
  };
  svg.addEventListener('keydown', (event) => {
    const at = nodes.indexOf(document.activeElement);
    const actions = {
      ArrowDown: () => go(near[at]?.below[0]), ArrowUp: () => go(near[at]?.above[0]),
      ArrowLeft: () => go(beside(at, -1)), ArrowRight: () => go(beside(at, 1)),
      Home: () => go(0), End: () => go(nodes.length - 1),
      Enter: () => choose(at), ' ': () => choose(at),
      '+': () => zoom(1.3), '=': () => zoom(1.3), '-': () => zoom(1 / 1.3), 0: () => fit(),
    };
    if (at < 0 || !actions[event.key] || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    actions[event.key]();
  });

  // One pointer moves, two zoom; a wheel zooms.
  const pointers = new Map();
  let moved = false;
  const gap = () => {
    const [a, b] = [...pointers.values()];
    return { length: Math.hypot(a.x - b.x, a.y - b.y), x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 };
  };
  const local = (event) => {
    const box = size();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  svg.addEventListener('pointerdown', (event) => {
    if (!pointers.size) moved = false;
    pointers.set(event.pointerId, local(event));
  });
  addEventListener('pointermove', (event) => {
    const before = pointers.get(event.pointerId);
    if (!before) return;
    const now = local(event);
    if (Math.hypot(now.x - before.x, now.y - before.y) < (moved ? 0 : 4)) return;
    moved = true;
    const wide = pointers.size === 2 ? gap() : null;
    pointers.set(event.pointerId, now);
    if (wide) {
      const after = gap();
      view.x -= (after.x - wide.x) / view.scale;
      view.y -= (after.y - wide.y) / view.scale;
      zoom(after.length / Math.max(wide.length, 1), after);
    } else {
      view.x -= (now.x - before.x) / view.scale;
      view.y -= (now.y - before.y) / view.scale;
      apply();
    }
  });
  for (const name of ['pointerup', 'pointercancel']) {
    addEventListener(name, (event) => pointers.delete(event.pointerId));
  }
  svg.addEventListener('wheel', (event) => {
    event.preventDefault();
    zoom(Math.exp(-event.deltaY * 0.0015), local(event));
  }, { passive: false });
  const tools = { in: () => zoom(1.3), out: () => zoom(1 / 1.3), fit };
  for (const button of root.querySelectorAll('[data-do]')) {
    button.addEventListener('click', () => tools[button.dataset.do]());
  }

  const search = root.querySelector('input');
  const output = root.querySelector('.found');
  let hits = [];
  let hit = -1;
  search.addEventListener('input', () => {
    const word = search.value.trim().toLowerCase();
    const fits = (node) => node.facts.some(([, value]) => value.toLowerCase().includes(word));
    hits = word ? graph.nodes.flatMap((node, number) => (fits(node) ? [number] : [])) : [];
    const found = new Set(hits);
    nodes.forEach((node, number) => node.classList.toggle('found', found.has(number)));
    hit = hits.length ? 0 : -1;
    output.textContent = word ? `${hits.length} found` : '';
    if (hits.length) { choose(hits[0]); show(hits[0]); }
  });
  search.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || !hits.length) return;
    event.preventDefault();
    hit = (hit + (event.shiftKey ? hits.length - 1 : 1)) % hits.length;
    output.textContent = `${hit + 1} of ${hits.length}`;
    choose(hits[hit]);
    show(hits[hit]);
  });
  addEventListener('resize', apply);
  start();
  choose(graph.nodes.reduce((best, node, number) => (node.share > graph.nodes[best].share ? number : best), 0));
}
document.documentElement.dataset.ready = 'yes';
