import assert from 'node:assert/strict';
import { chromeTrace } from '../../dashboard/token-view/chrome-trace.js';
import { compare, LIVE, pause, passTitle, show, shownPasses, step } from '../../dashboard/token-view/pass-choice.js';
import { timelineSvg } from '../../dashboard/token-view/svg-export.js';
import { timelineOf } from '../../dashboard/token-view/timeline.js';
import { samplePass } from '../dashboard/sample-passes.js';

describe('the Chrome trace of a pass', () => {
  const pass = samplePass({ layers: 6, workers: 3, expertsPerLayer: 3 });
  const timeline = timelineOf(pass, []);
  const { traceEvents } = chromeTrace(pass, timeline);

  it('has a process for each node, and a complete event for each bar', () => {
    const named = traceEvents.filter(({ name }) => name === 'process_name');
    assert.deepEqual(
      named.map(({ args }) => args.name),
      ['main', 'shadow', 'worker-0', 'worker-1', 'worker-2'],
    );
    const bars = timeline.lanes.reduce((sum, lane) => sum + lane.bars.length, 0);
    assert.equal(traceEvents.filter(({ ph }) => ph === 'X').length, bars);
  });

  it('counts microseconds from the earliest event, with the layer and the fate', () => {
    for (const { ts, dur } of traceEvents) assert.ok(Number.isInteger(ts) && ts >= 0 && (dur ?? 0) >= 0);
    const load = traceEvents.find(({ cat }) => cat === 'load');
    assert.equal(typeof load?.args.foretold, 'string');
    assert.match(load?.name ?? '', /^load expert \d+ L\d+$/);
    const attention = traceEvents.find(({ cat }) => cat === 'attention');
    assert.deepEqual([attention?.name, attention?.args.layer], ['attention L0', 0]);
    const longest = Math.max(...traceEvents.map(({ ts, dur }) => ts + (dur ?? 0)));
    assert.ok(Math.abs(longest - (timeline.endMs - timeline.beginMs) * 1000) <= 1);
  });

  it('has no two overlapping events of one thread', () => {
    const threads = traceEvents.filter(({ ph }) => ph === 'X');
    for (const event of threads) {
      const others = threads.filter((other) => other !== event && other.pid === event.pid && other.tid === event.tid);
      const overlapping = others.filter(
        (other) => other.ts + 1 < event.ts + (event.dur ?? 0) && event.ts + 1 < other.ts + (other.dur ?? 0),
      );
      assert.deepEqual(overlapping, [], JSON.stringify(event));
    }
  });
});

describe('the SVG of a pass', () => {
  it('is complete by itself: title, legend, times; no outside reference', () => {
    const pass = samplePass();
    const svg = timelineSvg([{ title: passTitle(pass), timeline: timelineOf(pass, []) }], 40);
    for (const words of [
      'Pass 7: sequence 3, position 47',
      'load, predicted late',
      'load, reloaded',
      'worker-1',
      '10 ms',
    ]) {
      assert.ok(svg.includes(words), words);
    }
    assert.ok(!/href|style|class=|<script/.test(svg));
    const used = [...svg.matchAll(/url\(#([^)]+)\)/g)].map((match) => match[1]);
    assert.ok(used.length > 0);
    for (const name of used) assert.ok(svg.includes(`<pattern id="${name ?? ''}"`), name);
  });

  it('escapes names, and shows two passes on one axis', () => {
    const pass = samplePass({ layers: 1 });
    const timeline = timelineOf(pass, ['<b>&"']);
    const svg = timelineSvg(
      [
        { title: 'first <1>', timeline },
        { title: 'second', timeline },
      ],
      40,
    );
    assert.ok(!svg.includes('<b>') && svg.includes('&lt;b&gt;&amp;'));
    assert.ok(svg.includes('first &lt;1&gt;') && svg.includes('second'));
  });

  it('is as wide as the zoom, within the limit of viewers', () => {
    const timeline = timelineOf(samplePass(), []);
    const widthOf = (pixelsPerMs: number): number =>
      Number(/width="(\d+)/.exec(timelineSvg([{ title: '', timeline }], pixelsPerMs))?.[1]);
    assert.ok(widthOf(200) > widthOf(1));
    assert.ok(widthOf(1e6) < 17_000);
  });
});

describe('the choice of displayed passes', () => {
  const passes = [1, 2, 5].map((number) => samplePass({ number, layers: 1 }));
  const later = [...passes, samplePass({ number: 6, layers: 1 })];

  it('is live at first: the newest pass', () => {
    assert.equal(shownPasses(LIVE, []).shown, null);
    assert.equal(shownPasses(LIVE, passes).shown?.number, 5);
    assert.equal(shownPasses(LIVE, later).shown?.number, 6);
  });

  it('stays at the paused pass, whatever arrives', () => {
    assert.equal(shownPasses(pause(passes), later).shown?.number, 5);
    assert.equal(pause([]), LIVE);
  });

  it('steps back and forth over missing numbers, and stops at the ends', () => {
    const back = step(LIVE, passes, -1);
    assert.equal(shownPasses(back, later).shown?.number, 2);
    assert.equal(shownPasses(step(back, later, -5), later).shown?.number, 1);
    assert.equal(shownPasses(step(back, later, 1), later).shown?.number, 5);
    assert.equal(shownPasses(step(back, later, 9), later).shown?.number, 5);
    assert.equal(step(LIVE, [], 1), LIVE);
  });

  it('compares two passes, and shows any pass', () => {
    const both = compare(LIVE, passes, 1);
    assert.deepEqual([shownPasses(both, later).shown?.number, shownPasses(both, later).compared?.number], [5, 1]);
    assert.equal(shownPasses(compare(both, later, null), later).compared, null);
    assert.equal(shownPasses(show(both, later, 2), later).shown?.number, 2);
  });

  it('names the tokens of a pass', () => {
    const [member] = passes[0]?.members ?? [];
    assert.ok(member !== undefined);
    const members = [{ ...member, kind: 'prompt' as const, rows: 8 }, ...Array.from({ length: 4 }, () => member)];
    const title = passTitle({ ...samplePass(), members });
    assert.match(
      passTitle({ ...samplePass(), members: [{ ...member, sequence: 222775956330541 }] }),
      /sequence …0541,/,
    );
    assert.match(title, /^Pass 7: prompt of sequence 3, positions 41 to 48; .*; and 2 more$/);
  });
});
