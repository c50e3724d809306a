import assert from 'node:assert/strict';
import {
  REMEMBERED_FIGURES_S,
  RECORDED_PASSES,
  type ClusterEvent,
  type PassTimeline,
} from '../../shared/wire/cluster-events.js';
import { AnswerTotals } from '../../main-node/events/answer-totals.js';
import {
  ClusterFeed,
  REPORTED_EXPERTS_PER_S,
  MAX_LISTENERS,
  type FeedSources,
} from '../../main-node/events/cluster-feed.js';
import { ListenerQueue, MAX_WAITING_FIGURES } from '../../main-node/events/listener-queue.js';
import { ExpertHeatCounts } from '../../main-node/events/expert-heat.js';
import { type FigureCounts, Figures } from '../../main-node/events/figures.js';
import { VirtualClock } from '../../shared/base/runtime/virtual-clock.js';
import { VirtualRuntime } from '../../shared/base/runtime/virtual-runtime.js';

type EventOf<Type extends ClusterEvent['type']> = Extract<ClusterEvent, { type: Type }>;

const cluster = (name: string): EventOf<'cluster'> => ({ type: 'cluster', cluster: { name } as never });
const figures = (): EventOf<'figures'> => ({ type: 'figures', samples: [] });
const pass = (number: number): EventOf<'pass'> => ({ type: 'pass', pass: { number } as never });

/** In two layers. */
const passOf = (experts: number): PassTimeline => {
  const layer = { experts: new Array<unknown>(experts / 2).fill(null) };
  return { number: 2, layers: [layer, layer] } as never;
};

const NO_ANSWERS = { activated: 0, predicted: 0, reloads: 0, draftsRun: 0, draftsRight: 0 };
const NOTHING: FigureCounts = {
  answers: NO_ANSWERS,
  peers: new Map(),
  activeRequests: 0,
  queuedRequests: 0,
  passes: 0,
  rows: 0,
};

describe('pending events of a slow listener', () => {
  it('are the newest of each kind, and arrive in a consistent order', async () => {
    const queue = new ListenerQueue(true, () => undefined);
    for (const event of [pass(1), cluster('old'), figures(), pass(2), cluster('new')]) queue.put(event);
    const taken = [await queue.next(), await queue.next(), await queue.next(), await queue.next()];
    assert.deepEqual(taken, [cluster('new'), figures(), pass(1), pass(2)]);
    const next = queue.next();
    queue.put(cluster('later'));
    assert.deepEqual(await next, cluster('later'));
  });

  it('drop passes first; a listener that takes nothing for long is disconnected', async () => {
    let ended = 0;
    const queue = new ListenerQueue(true, () => (ended += 1));
    for (let number = 0; number < RECORDED_PASSES + 3; number++) queue.put(pass(number));
    assert.deepEqual(await queue.next(), pass(3));
    for (let second = 0; second < MAX_WAITING_FIGURES; second++) queue.put(figures());
    assert.equal(ended, 0);
    queue.put(figures());
    assert.equal(ended, 1);
    assert.equal(await queue.next(), null);
    queue.end();
    assert.equal(ended, 1);
  });

  it('include no passes where the listener does not want them', async () => {
    const queue = new ListenerQueue(false, () => undefined);
    queue.put(pass(1));
    queue.put(cluster('c'));
    assert.deepEqual(await queue.next(), cluster('c'));
    const next = queue.next();
    queue.end();
    assert.equal(await next, null);
  });
});

describe('the sampled figures of the page', () => {
  it('cover one second: rates, means and shares since the sample before', () => {
    const meter = new Figures();
    const peers = new Map([['w', { loads: 100, storageReadBytes: 1000 }]]);
    meter.sample(1000, { ...NOTHING, peers });
    for (let token = 0; token < 3; token++) meter.token();
    meter.firstToken(10);
    meter.firstToken(20);
    const sample = meter.sample(2500, {
      answers: { activated: 8, predicted: 6, reloads: 3, draftsRun: 4, draftsRight: 1 },
      peers: new Map([
        ['w', { loads: 103, storageReadBytes: 4000 }],
        ['new', { loads: 50, storageReadBytes: 9 }],
      ]),
      activeRequests: 2,
      queuedRequests: 1,
      passes: 5,
      rows: 9,
    });
    assert.deepEqual(sample, {
      atMs: 2500,
      tokensPerS: 2,
      ttftMs: 15,
      recall: 0.75,
      reloadsPerS: 2,
      draftsRight: 0.25,
      loadsPerS: 2,
      loadBytesPerS: 2000,
      activeRequests: 2,
      queuedRequests: 1,
      passes: 5,
      rows: 9,
    });
    const quiet = meter.sample(3500, { ...NOTHING, answers: { ...NO_ANSWERS, activated: 8, predicted: 6 } });
    assert.deepEqual([quiet.ttftMs, quiet.recall, quiet.draftsRight, quiet.tokensPerS], [null, null, null, 0]);
  });

  it('are remembered for ten minutes', () => {
    const meter = new Figures();
    for (let second = 1; second <= REMEMBERED_FIGURES_S + 5; second++) meter.sample(second * 1000, NOTHING);
    assert.equal(meter.remembered.length, REMEMBERED_FIGURES_S);
    assert.equal(meter.remembered[0]?.atMs, 6000);
  });
});

describe('the total cost of answers', () => {
  const source = (correct: number[], activated: number[], reloads: number) => ({
    cost: () => ({
      activations: { inTime: 3, late: 1, missed: 2, unpredicted: 9 },
      reloads,
      ioStallMs: 0,
      drafts: null,
      cachedTokens: 0,
    }),
    sepMetrics: () => ({
      recall: 0,
      activated: 0,
      predictedCorrectly: 0,
      late: 0,
      correctByIteration: correct,
      activatedByIteration: activated,
    }),
  });

  it('counts running answers and ended ones, each once', () => {
    const totals = new AnswerTotals();
    const [ended, running] = [source([1, 2], [2, 2], 5), source([1], [3], 2)];
    totals.begun(ended);
    totals.begun(running);
    const both = { activated: 12, predicted: 8, reloads: 7, draftsRun: 0, draftsRight: 0 };
    assert.deepEqual(totals.counts(), both);
    totals.answered(ended);
    totals.answered(ended);
    assert.deepEqual(totals.counts(), both);
    assert.deepEqual(totals.recall(), { correct: [2, 2], activated: [5, 2] });
  });
});

describe('the heat of experts', () => {
  it('fades: a choice counts half after about a minute', () => {
    const heat = new ExpertHeatCounts({ expertLayers: 2, experts: 3 });
    heat.chosen(1, 2, 100);
    assert.deepEqual(heat.view(), { expertLayers: 2, experts: 3, counts: [0, 0, 0, 0, 0, 100] });
    for (let look = 0; look < 12; look++) heat.fade();
    const last = heat.view().counts[5] ?? 0;
    assert.ok(last > 45 && last < 55, `${last}`);
  });
});

describe('the feed of cluster events', () => {
  const clock = new VirtualClock();
  const runtime = new VirtualRuntime(clock, 1);
  const asked = { views: 0 };
  const sources: FeedSources = {
    view: () => ({ name: `view ${(asked.views += 1)}` }) as never,
    figures: new Figures(),
    counts: () => NOTHING,
    recall: () => ({ correct: [], activated: [] }),
    heat: new ExpertHeatCounts({ expertLayers: 1, experts: 1 }),
    passes: () => [{ number: 1 } as never],
  };
  const wait = async (ms: number): Promise<void> => {
    let isOver = false;
    const over = runtime.sleep(ms).then(() => (isOver = true));
    await clock.run(() => isOver, { events: 10_000 });
    await over;
  };
  const take = async (queue: ListenerQueue, count: number): Promise<string[]> => {
    const types: string[] = [];
    for (let taken = 0; taken < count; taken++) types.push((await queue.next())?.type ?? 'end');
    return types;
  };

  it('begins with the whole state, sends each change, and builds no view that nobody sees', async () => {
    const feed = new ClusterFeed(sources, runtime, runtime.nowMs());
    feed.start();
    await wait(3050);
    assert.deepEqual([asked.views, sources.figures.remembered.length], [0, 3]);
    const queue = feed.listen(true);
    assert.deepEqual(await take(queue, 5), ['cluster', 'figures', 'recall', 'heat', 'pass']);
    await wait(1000);
    assert.deepEqual(await take(queue, 2), ['cluster', 'figures']);
    await wait(1000);
    assert.deepEqual(await take(queue, 4), ['cluster', 'figures', 'recall', 'heat'], 'the fifth second');
    for (let change = 0; change < 5; change++) feed.nodesChanged();
    const views = asked.views;
    await wait(200);
    assert.deepEqual([await take(queue, 1), asked.views], [['cluster'], views + 1]);
    feed.nodesChanged();
    feed.stop();
    assert.deepEqual(await take(queue, 1), ['end']);
    assert.throws(() => feed.listen(true), { code: 'NO_MAIN' });
    assert.equal(runtime.openCounts.timers, 0);
  });

  it('sends at most five passes a second, and only where they are wanted', async () => {
    const feed = new ClusterFeed(sources, runtime, runtime.nowMs());
    assert.equal(feed.wantsPass, false);
    feed.listen(false);
    assert.equal(feed.wantsPass, false);
    feed.listen(true);
    assert.equal(feed.wantsPass, true);
    feed.passEnded(passOf(10));
    assert.equal(feed.wantsPass, false);
    await wait(200);
    assert.equal(feed.wantsPass, true);
    feed.passEnded(passOf(REPORTED_EXPERTS_PER_S));
    await wait(990);
    assert.equal(feed.wantsPass, false, 'a large pass counts for several');
    await wait(10);
    assert.equal(feed.wantsPass, true);
    feed.stop();
  });

  it('has a bound on its listeners', () => {
    const feed = new ClusterFeed(sources, runtime, runtime.nowMs());
    const queues = Array.from({ length: MAX_LISTENERS }, () => feed.listen(false));
    assert.throws(() => feed.listen(false), { code: 'QUEUE_FULL' });
    queues[0]?.end();
    feed.listen(false);
    feed.stop();
    assert.equal(feed.listenerCount, 0);
  });
});
