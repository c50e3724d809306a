/**
 * Clusters whose time goes into loads, on a virtual clock: storage gives so many bytes a millisecond, nothing is cached, and an expert has the
 * bytes that its pack stores for it. Sliced qualities then trade answers for speed.
 */
import assert from 'node:assert/strict';
import { openPack } from '../../packs/format/open-pack.js';
import { openSlices } from '../../packs/slices/open-slices.js';
import { partOfPlane, PARTS, recordOf, sumOfParts, type PerPart } from '../../shared/model/expert-parts.js';
import type { ExpertSource } from '../../shared/model/tensor-source.js';
import { readQuality, type Quality } from '../../shared/settings/quality.js';
import { requestFor } from '../integration/harness/answers.js';
import { slicedPackOf } from '../integration/harness/test-models.js';
import { stopVirtualCluster, VirtualCluster } from './virtual-cluster.js';

/** The threshold that odmoe pack measures for a share of 0.3 of the demo model's executions. */
const THETA = { critical: 0.3, theta: 0.637 };
/** Slow enough that a load takes many times as long as all else. */
const STORAGE_BYTES_PER_MS = 4000;
const PROMPT = Array.from({ length: 12 }, (_, index) => (index * 37 + 3) % 1000);
const TOKENS = 24;
/** Least speed-ups over lossless huffman loads. */
const LEAST_SPEEDUPS = { 'sliced(8,4,low)': 2, 'sliced(8,4,critical=0.3)': 1.6 } as const;
/** An answer's own share of critical executions may differ by this much from the measured one. */
const SHARE_TOLERANCE = 0.1;

interface Served {
  readonly tokensPerS: number;
  readonly loads: number;
  readonly readBytes: number;
}

const qualityOf = (text: string): Quality => {
  const read = readQuality(text);
  return 'quality' in read ? read.quality : assert.fail(read.problem);
};

/** Stored bytes of an expert, by part. */
function storedBytes({ gate, up, down }: ExpertSource): PerPart<number> {
  const chunks = [gate, up, down].flatMap((matrix) => matrix.chunks);
  return recordOf(PARTS, (part) =>
    chunks.filter(({ plane }) => partOfPlane(plane) === part).reduce((sum, chunk) => sum + chunk.storedBytes, 0),
  );
}

describe('a cluster whose time goes into loads', function () {
  this.timeout(120_000);
  let pack: string;
  let lossless: PerPart<number>;
  let slices: PerPart<number>;
  let cluster: VirtualCluster | null = null;

  before(async () => {
    pack = await slicedPackOf('demo', [THETA]);
    lossless = storedBytes((await openPack(pack)).expert(0, 0));
    slices = storedBytes((await openSlices(pack)).expert(0, 0));
  });

  afterEach(async function () {
    await stopVirtualCluster(this, cluster);
    cluster = null;
  });

  /** One worker and no predictions: each expert that a router chooses is loaded, and its execute waits for it. */
  const serve = async (text: string): Promise<Served> => {
    const quality = qualityOf(text);
    const stored = quality.kind === 'exact' ? lossless : slices;
    const bytes = sumOfParts(stored);
    const settings = { main: { quality }, prediction: { source: 'off', layersAhead: 1 } } as const;
    const running = await VirtualCluster.start({
      packDirectory: pack,
      workers: 1,
      main: settings,
      worker: () => settings,
      load: { loadMs: bytes / STORAGE_BYTES_PER_MS, exponentShare: stored.exponent / bytes },
    });
    cluster = running;
    const { finished } = await running.ask(requestFor(PROMPT, { maxTokens: TOKENS }));
    const status = (await running.status()).nodes.find(({ identity }) => identity.role === 'ROLE_WORKER');
    const device = running.deviceOf('worker-0').loaded;
    assert.ok(status !== undefined && finished.timing !== null);
    assert.deepEqual([status.loads, status.storageReadBytes], [device.loads, device.readBytes]);
    await stopVirtualCluster(this.ctx, running);
    cluster = null;
    return { tokensPerS: finished.timing.decodeTokensPerS, loads: device.loads, readBytes: device.readBytes };
  };

  it('gives more tokens a second from slices than from lossless huffman loads, by the bytes that it reads', async () => {
    const exact = await serve('exact');
    assert.ok(Math.abs(exact.readBytes / exact.loads / sumOfParts(lossless) - 1) < 0.05);
    for (const [text, least] of Object.entries(LEAST_SPEEDUPS)) {
      const sliced = await serve(text);
      const speedup = sliced.tokensPerS / exact.tokensPerS;
      assert.ok(speedup >= least, `${text}: ${speedup.toFixed(2)} times the tokens a second of lossless loads`);
      const lowerShare = (sliced.readBytes / sliced.loads - slices.exponent) / slices.signMantissa;
      const expected = text.includes('critical') ? THETA.critical : 0;
      assert.ok(Math.abs(lowerShare - expected) <= (expected > 0 ? SHARE_TOLERANCE : 0), `${text}: ${lowerShare}`);
    }
  });
});
