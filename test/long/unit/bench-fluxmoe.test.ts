import assert from 'node:assert/strict';
import { layoutOf } from '../../../bench/fluxmoe/expert-layout.js';
import { FIGURES } from '../../../bench/fluxmoe/figure-cells.js';
import { measureFigure } from '../../../bench/fluxmoe/figures.js';
import { fluxmoeReportText, SERVER_PROFILE } from '../../../bench/fluxmoe/index.js';
import { measureServing } from '../../../bench/fluxmoe/measure-serving.js';
import { loadServerProfile, type ServerGpu, type ServerProfile } from '../../../bench/fluxmoe/server-profile.js';
import { ServerWork } from '../../../bench/fluxmoe/server-work.js';

const PROFILE = loadServerProfile(SERVER_PROFILE);

function halved(rate: keyof ServerGpu): ServerProfile {
  return { ...PROFILE, gpu: { ...PROFILE.gpu, [rate]: PROFILE.gpu[rate] / 2 } };
}

async function tokensPerS(
  profile: ServerProfile,
  system: Parameters<typeof measureServing>[2],
  point: { batch: number; context: number },
  model: 'performance' | 'capacity' = 'performance',
): Promise<number> {
  return (await measureServing(profile, { model: profile[model], ...point }, system)).tokensPerS;
}

describe('bench fluxmoe', () => {
  it('counts weights as the paper does', async () => {
    const { cells } = await measureFigure('table1', PROFILE);
    assert.equal(cells.length, 4);
    for (const { paper, ours, what } of cells) assert.ok(Math.abs(ours / (paper ?? 0) - 1) < 0.05, what);
  });

  it('gives a pass with resident experts the time of computing alone', async () => {
    const work = new ServerWork(PROFILE.performance, PROFILE.gpu, PROFILE.costs);
    const point = { model: PROFILE.performance, batch: 32, context: 4096 };
    const { passMs, rows, swapMs } = await measureServing(PROFILE, point, 'resident');
    assert.deepEqual([rows, swapMs], [32, 0]);
    const positions = Math.round(4096 * PROFILE.costs.contextShare);
    assert.ok(Math.abs(passMs / work.computeMs(32, positions) - 1) < 1e-6);
  });

  it('changes only the figures that depend on a bandwidth when that is halved', async () => {
    const small = { batch: 32, context: 4096 };
    const large = { batch: 256, context: 4096 };
    // Decompression bounds the compressed system with few sequences, and is nothing to a resident one.
    const compressed = await tokensPerS(PROFILE, 'compressed', small);
    const slower = await tokensPerS(halved('decompressBytesPerS'), 'compressed', small);
    assert.ok(Math.abs(slower / compressed - 0.5) < 0.02, String(slower / compressed));
    const resident = await tokensPerS(PROFILE, 'resident', small);
    assert.equal(await tokensPerS(halved('decompressBytesPerS'), 'resident', small), resident);
    // Keys and values that do not fit go over their link.
    const swapping = await tokensPerS(PROFILE, 'resident', large);
    assert.ok((await tokensPerS(halved('cacheLinkBytesPerS'), 'resident', large)) < 0.8 * swapping);
    assert.equal(await tokensPerS(halved('cacheLinkBytesPerS'), 'resident', small), resident);
    // Experts in host memory.
    const divided = await tokensPerS(PROFILE, 'divided', { batch: 256, context: 1024 }, 'capacity');
    const halfLink = await tokensPerS(
      halved('expertLinkBytesPerS'),
      'divided',
      { batch: 256, context: 1024 },
      'capacity',
    );
    assert.ok(halfLink < 0.6 * divided);
  });

  it("keeps the paper's orders, and its ratios within a fifth", async () => {
    const { cells, orders } = await measureFigure('figure7', PROFILE);
    assert.deepEqual(
      orders.filter(({ holds }) => !holds),
      [],
    );
    for (const { paper, ours, what } of cells) {
      if (paper !== null) assert.ok(Math.abs(ours / paper - 1) < 0.2, `${what}: ${ours} beside ${paper}`);
    }
  });

  it('divides a layer within the limit of compressed memory', () => {
    const work = new ServerWork(PROFILE.capacity, PROFILE.gpu, PROFILE.costs);
    const layout = layoutOf('divided', work);
    assert.equal(layout.layers.length, 32);
    for (const { gateUp, down } of layout.layers) {
      const host = gateUp.host + down.host;
      assert.ok(host >= work.layerExpertBytes / 8 && host <= work.layerExpertBytes / 8 + work.expertBytes);
    }
    assert.ok(layout.deviceBytes < work.freeBytes);
  });

  it("gives keys and values the experts' memory where rho requires nothing (figure 9b)", async () => {
    const { cells } = await measureFigure('figure9', PROFILE);
    const of = (what: string): number => cells.find((cell) => cell.what === what)?.ours ?? assert.fail(what);
    assert.ok(of('(b) times that alpha is lowered') > 0 && of('(b) alpha at the end') < 1);
    assert.ok(of('(b) planner over fixed alpha, least of all intervals') > 0.9);
    assert.ok(cells.every(({ what, paper }) => !what.startsWith('(b)') || paper === null));
  });

  it('gives the same figures every time, beside those of the paper', async () => {
    const first = await measureFigure('figure6', PROFILE);
    assert.deepEqual(await measureFigure('figure6', PROFILE), first);
    assert.ok(first.orders.every(({ holds }) => holds));
    const text = fluxmoeReportText(first, PROFILE.name);
    assert.match(text, /^figure +what +unit +paper +emulated +difference$/m);
    assert.match(text, /emulated: l40-fluxmoe/);
    assert.ok(FIGURES.includes('figure10'));
  });
});
