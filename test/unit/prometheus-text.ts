/** A strict reader of Prometheus' text format, and the further rules for our metrics. */
import assert from 'node:assert/strict';

export interface MetricSample {
  /** Name of the sample. In a histogram it ends with _bucket, _sum or _count. */
  name: string;
  labels: Record<string, string>;
  value: number;
}

export interface MetricFamily {
  name: string;
  help: string;
  type: string;
  samples: MetricSample[];
}

const SAMPLE = /^([a-z_]+)(?:\{(.*)\})? ([-+.e\dINFa]+)$/;
const LABEL = /([a-z_]+)="((?:[^"\\]|\\.)*)"/g;

/** Families by name. Fails on text that a scraper would refuse. */
export function parseMetrics(text: string): Map<string, MetricFamily> {
  const families = new Map<string, MetricFamily>();
  assert.ok(text.endsWith('\n'));
  for (const line of text.split('\n')) {
    if (line === '') continue;
    const family = [...families.values()].pop();
    const [, kind, name = '', words = ''] = /^# (HELP|TYPE) (\S+) (.+)$/.exec(line) ?? [];
    if (kind === 'HELP') {
      assert.ok(!families.has(name), `${name} comes twice`);
      families.set(name, { name, help: words, type: '', samples: [] });
    } else if (kind === 'TYPE') {
      assert.ok(family?.name === name, line);
      family.type = words;
    } else {
      assert.ok(family !== undefined && line.startsWith(family.name), line);
      family.samples.push(parseSample(line));
    }
  }
  return families;
}

function parseSample(line: string): MetricSample {
  const [, name = '', inBraces = '', value = ''] = SAMPLE.exec(line) ?? assert.fail(line);
  const labels = Object.fromEntries([...inBraces.matchAll(LABEL)].map(([, label = '', text = '']) => [label, text]));
  assert.equal(Object.keys(labels).length, inBraces === '' ? 0 : inBraces.match(/="/g)?.length, line);
  const number = value === '+Inf' ? Infinity : Number(value);
  assert.ok(!Number.isNaN(number), line);
  return { name, labels, value: number };
}

/** The value of the one sample with these labels; 0 if there is none. */
export function valueOf(
  families: Map<string, MetricFamily>,
  name: string,
  labels: Record<string, string> = {},
): number {
  const family = families.get(name) ?? families.get(name.replace(/_(bucket|sum|count)$/, '')) ?? assert.fail(name);
  const found = family.samples.filter(
    (sample) =>
      sample.name === name && Object.entries(labels).every(([label, value]) => sample.labels[label] === value),
  );
  assert.ok(found.length <= 1, `${found.length} of ${name} ${JSON.stringify(labels)}`);
  return found[0]?.value ?? 0;
}

/** Fails if a metric breaks the conventions of all our metrics. */
export function checkConventions(families: Map<string, MetricFamily>): void {
  for (const family of families.values()) {
    const { name, type, help, samples } = family;
    assert.match(name, /^odmoe_[a-z]+(_[a-z]+)*$/);
    assert.match(help, /^[A-Z"].*[.)]$/, `${name}: a sentence`);
    assert.ok(['counter', 'gauge', 'histogram'].includes(type), `${name} ${type}`);
    assert.equal(name.endsWith('_total'), type === 'counter', `${name}: _total is of counters`);
    assert.doesNotMatch(name, /_(ms|us|milliseconds|microseconds|kb|mb|gb|kilobytes|megabytes|percent)(_|$)/, name);
    if (type === 'histogram') assert.match(name, /_seconds$/);
    else assert.doesNotMatch(name, /_(bucket|sum|count)$/);
    const series = samples.map((sample) => `${sample.name} ${JSON.stringify(Object.entries(sample.labels).sort())}`);
    assert.equal(new Set(series).size, series.length, `${name} has a series twice`);
    if (type === 'counter') for (const { value } of samples) assert.ok(value >= 0 && value < Infinity, name);
    if (type === 'histogram') checkHistogram(family);
  }
}

function checkHistogram({ name, samples }: MetricFamily): void {
  const bySeries = new Map<string, MetricSample[]>();
  for (const sample of samples) {
    const key = JSON.stringify(Object.entries(sample.labels).filter(([label]) => label !== 'le'));
    bySeries.set(key, [...(bySeries.get(key) ?? []), sample]);
  }
  for (const series of bySeries.values()) {
    const buckets = series.filter((sample) => sample.name === `${name}_bucket`);
    const bounds = buckets.map(({ labels }) => (labels['le'] === '+Inf' ? Infinity : Number(labels['le'])));
    assert.deepEqual(
      bounds,
      [...bounds].sort((left, right) => left - right),
      name,
    );
    const counts = buckets.map(({ value }) => value);
    assert.deepEqual(
      counts,
      [...counts].sort((left, right) => left - right),
      `${name}: buckets add up`,
    );
    assert.equal(counts[counts.length - 1], series.find((sample) => sample.name === `${name}_count`)?.value);
  }
}
