'use strict';
// Draws each .chart of the page from the specification in #pictures, in the colours of the theme.
const readPictures = () => JSON.parse(document.getElementById('pictures')?.textContent ?? '{}');
let pictures = readPictures();
const tip = document.body.appendChild(document.createElement('div'));
tip.id = 'tip';
tip.hidden = true;

function showTip(handler, event, item, value) {
  tip.hidden = !value;
  if (!value) return;
  const lines = Object.entries(value).filter(([, text]) => text !== '' && text != null);
  tip.replaceChildren(...lines.map(([name, text]) => {
    const line = document.createElement('div');
    line.textContent = name.trim() ? `${name}: ${text}` : text;
    return line;
  }));
  const box = tip.getBoundingClientRect();
  const place = (at, size, room) => Math.max(4, at + 14 + size > room ? at - size - 14 : at + 14);
  tip.style.left = `${place(event.clientX, box.width, innerWidth)}px`;
  tip.style.top = `${place(event.clientY, box.height, innerHeight)}px`;
}

function configOfTheme() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(`--${name}`).trim();
  const words = { labelColor: of('ink'), titleColor: of('ink'), labelFontSize: 12, titleFontSize: 12 };
  return {
    background: of('page'),
    font: 'system-ui, sans-serif',
    autosize: { type: 'fit-x', contains: 'padding' },
    view: { stroke: null, continuousWidth: 200 },
    axis: { ...words, domainColor: of('line'), tickColor: of('line'), gridColor: of('line'), gridOpacity: 0.35 },
    legend: { ...words, orient: 'top', columns: innerWidth < 600 ? 2 : 6, labelLimit: 140 },
    title: { color: of('ink'), anchor: 'start', fontSize: 13, fontWeight: 600, limit: Math.max(200, innerWidth - 60) },
    range: { category: [0, 1, 2, 3, 4, 5, 6].map((number) => of(`c${number}`)) },
    mark: { color: of('c0') },
    bar: { stroke: of('page'), strokeWidth: 0.5 },
    rect: { stroke: of('page'), strokeWidth: 1 },
    rule: { color: of('ink') },
    line: { color: of('c0') },
  };
}

function draw(place) {
  const spec = pictures[place.dataset.part].charts[Number(place.dataset.chart)];
  const config = configOfTheme();
  const compiled = vegaLite.compile(spec, { config, logger: vega.logger(vega.Error) });
  const view = new vega.View(vega.parse(compiled.spec, undefined, { ast: true }), {
    expr: vegaInterpreter.expressionInterpreter,
    renderer: JSON.stringify(spec).length > 300000 ? 'canvas' : 'svg',
    container: place,
    loader: vega.loader({ sanitize: () => Promise.reject(new Error('no network')) }),
    hover: true,
    tooltip: showTip,
  });
  place.view?.finalize();
  place.view = view;
  return view.runAsync().then(() => { // its place has the name, and a table below has the figures
    for (const drawn of place.querySelectorAll('svg, canvas')) drawn.setAttribute('aria-hidden', 'true');
  });
}

let drawing = Promise.resolve();
function drawAll() {
  pictures = readPictures();
  drawing = drawing.then(() => Promise.all([...document.querySelectorAll('.chart')].map(draw))).then(() => {
    document.documentElement.dataset.drawn = 'yes';
  });
  return drawing;
}

const themes = ['as the system', 'light', 'dark'];
let theme = 0;
document.getElementById('theme')?.addEventListener('click', (event) => {
  theme = (theme + 1) % themes.length;
  if (theme) document.documentElement.dataset.theme = themes[theme];
  else delete document.documentElement.dataset.theme;
  event.currentTarget.textContent = `Theme: ${themes[theme]}`;
  drawAll();
});
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', drawAll);
addEventListener('scroll', () => { tip.hidden = true; }, { passive: true });
drawAll();
