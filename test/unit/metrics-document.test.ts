import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { MainMetrics } from '../../main-node/metrics/main-metrics.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { metricFigures, ENDED_REQUEST } from './metric-figures.js';
import { parseMetrics, type MetricFamily } from './prometheus-text.js';

const fileOf = (...path: string[]): string => readFileSync(join(packageRoot(), 'docs', ...path), 'utf8');

async function exported(): Promise<Map<string, MetricFamily>> {
  const metrics = new MainMetrics();
  metrics.requests.ended(ENDED_REQUEST);
  metrics.httpRequestEnded('/health', 'ok');
  return parseMetrics(await metrics.text(metricFigures()));
}

interface Documented {
  type: string;
  labels: string[];
}

function documented(): Map<string, Documented> {
  const rows = [
    ...fileOf('metrics.md').matchAll(/^\| `(odmoe_[a-z_]+)` \| (counter|gauge|histogram) \|(.*?)\| \S.*\|$/gm),
  ];
  const entries = rows.map(([, name = '', type = '', labels = '']): [string, Documented] => [
    name,
    { type, labels: [...labels.matchAll(/`([a-z]+)`/g)].map(([, label = '']) => label).sort() },
  ]);
  assert.equal(new Set(entries.map(([name]) => name)).size, entries.length, 'each metric has one row');
  return new Map(entries);
}

/** Names of metrics in the dashboard's expressions. */
function shown(): Set<string> {
  const dashboard = JSON.parse(fileOf('grafana', 'odmoe.json')) as {
    panels: { title: string; targets?: { expr: string }[] }[];
    templating: { list: { query: unknown }[] };
  };
  const texts = [
    ...dashboard.panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr)),
    ...dashboard.templating.list.map(({ query }) => JSON.stringify(query)),
  ];
  assert.ok(texts.length > 30);
  return new Set(texts.flatMap((text) => text.match(/odmoe_[a-z_]+/g) ?? []));
}

describe('the metrics document docs/metrics.md', () => {
  it('names every metric with its type and labels, and no other', async () => {
    const measured = new Map(
      [...(await exported())].map(([name, { type, samples }]): [string, Documented] => {
        const labels = new Set(samples.flatMap((sample) => Object.keys(sample.labels)));
        return [name, { type, labels: [...labels].filter((label) => label !== 'le').sort() }];
      }),
    );
    assert.deepEqual(Object.fromEntries([...documented()].sort()), Object.fromEntries([...measured].sort()));
  });
});

describe('the Grafana dashboard', () => {
  it('uses existing metrics, and shows all of them', async () => {
    const families = await exported();
    const bases = [...shown()].map((name) => (families.has(name) ? name : name.replace(/_(bucket|sum|count)$/, '')));
    assert.deepEqual(
      bases.filter((name) => !families.has(name)),
      [],
    );
    assert.deepEqual(
      [...families.keys()].filter((name) => !bases.includes(name)),
      [],
    );
    for (const name of shown()) {
      const base = name.replace(/_(bucket|sum|count)$/, '');
      if (base !== name && !families.has(name)) assert.equal(families.get(base)?.type, 'histogram', name);
    }
  });

  it('has panels that do not overlap, each with its own number', () => {
    const { panels } = JSON.parse(fileOf('grafana', 'odmoe.json')) as {
      panels: { id: number; title: string; gridPos: { x: number; y: number; w: number; h: number } }[];
    };
    assert.equal(new Set(panels.map(({ id }) => id)).size, panels.length);
    const cells = new Map<string, string>();
    for (const { title, gridPos } of panels) {
      assert.ok(gridPos.x + gridPos.w <= 24, title);
      for (let x = gridPos.x; x < gridPos.x + gridPos.w; x++) {
        for (let y = gridPos.y; y < gridPos.y + gridPos.h; y++) {
          assert.equal(cells.get(`${x} ${y}`), undefined, `${title} lies on another panel`);
          cells.set(`${x} ${y}`, title);
        }
      }
    }
  });
});
