/** A worker without a pack that computes with slices: it fetches them from main, and no lossless experts. */
import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { PackServer } from '../../packs/fetching/pack-server.js';
import type { RunningNode } from '../../engine/daemon/running-node.js';
import { FetchSetting } from '../unit/fetch-test-pack.js';
import { refusal } from '../unit/tiny-pack.js';
import { ENVIRONMENT, openPackSource, RUNTIME } from '../wall.js';
import { ALL, CRITICAL, qualityOf, SlicedSetting } from './worker-sliced-setting.js';
import type { WorkerTestClient } from './worker-test-client.js';

describe('worker daemon: fetching slices', function () {
  this.timeout(120_000);
  const sliced = new SlicedSetting();
  const fetching = new FetchSetting();

  const start = (quality: string, mainAddress: string): Promise<RunningNode> => {
    mkdirSync(fetching.parent, { recursive: true });
    const changes = { slots: 2, mainAddress, main: { quality: qualityOf(quality) } };
    return sliced.workers.start(changes, fetching.directory);
  };

  /** Connects a main that wants all experts here, and waits until they are. */
  const prepare = async (node: RunningNode, mainAddress: string): Promise<WorkerTestClient> => {
    const main = await sliced.workers.connect(node, { address: mainAddress });
    assert.equal(main.welcome?.id, 'worker');
    main.send({ kind: 'prospect', prospect: { number: 1, placement: sliced.placement, sources: [] } });
    await main.status('all slices are here', ({ fetchReadyFor }) => fetchReadyFor === 1);
    main.place(sliced.placement);
    return main;
  };

  const sizes = (): Map<string, number> =>
    new Map(readdirSync(fetching.directory).map((name) => [name, statSync(join(fetching.directory, name)).blocks]));

  it('fetches upper slices alone for a quality that reads no more, and no lossless part of an expert', async () => {
    const address = await sliced.serveMain(fetching, sliced.share());
    const node = await start('sliced(8,4,low)', address);
    const main = await prepare(node, address);
    for (let layer = 0; layer < sliced.pack.shape.expertLayers; layer += 1)
      await sliced.check(main, layer, 1, layer, ALL);
    const names = [...sizes().keys()];
    assert.deepEqual(
      names.filter((name) => name.includes('lower') || name.startsWith('experts')),
      [],
    );
    const upperBytes = sliced.slices.manifest.experts.reduce(
      (sum, { layer, expert }) => sum + sliced.sliceBytes('upper', layer, expert),
      0,
    );
    const status = await main.status('the bytes are reported');
    assert.ok(status.fetchReceivedBytes >= upperBytes && status.fetchReceivedBytes < 1.3 * upperBytes);
    assert.equal(main.own.slicesDigest, sliced.slices.digest);
  });

  it('fetches both slices where rows read both, computes with them, and gives them to others', async () => {
    const address = await sliced.serveMain(fetching, sliced.share());
    const node = await start(CRITICAL, address);
    const main = await prepare(node, address);
    await sliced.check(main, 0, 2, 0, [1]);
    await sliced.check(main, 1, 3, 1);
    assert.ok(existsSync(join(fetching.directory, 'slices.json')));
    assert.deepEqual(
      [...sizes().keys()].filter((name) => name.startsWith('experts')),
      [],
    );
    const source = openPackSource(node.address);
    try {
      const { slices } = await source.describe(5000);
      assert.equal(slices?.digest, sliced.slices.digest);
      assert.deepEqual(Buffer.from(slices.heldLower), Buffer.from(sliced.share().describe().slices?.heldLower ?? []));
    } finally {
      source.close();
    }
  });

  it('loads an expert whose slices come only now, before anything was announced', async () => {
    const address = await sliced.serveMain(fetching, sliced.share());
    const node = await start(CRITICAL, address);
    const main = await sliced.workers.connect(node, { address });
    main.place(sliced.placement);
    await sliced.check(main, 0, 2, 0, ALL);
    await sliced.check(main, 0, 2, 1);
  });

  it('fetches a slice again that is damaged on its disk', async () => {
    const address = await sliced.serveMain(fetching, sliced.share());
    const first = await start(CRITICAL, address);
    await prepare(first, address);
    await first.stop();
    sliced.damage(fetching.directory, 'lower', 0, 5);
    sliced.damage(fetching.directory, 'upper', 1, 2);
    const node = await start(CRITICAL, address);
    const main = await sliced.workers.connect(node, { address });
    main.place(sliced.placement);
    await sliced.check(main, 0, 5, 0, [1]);
    await sliced.check(main, 1, 2, 1);
    const status = await main.status(
      'the mended slices are counted',
      ({ fetchReceivedBytes }) => fetchReceivedBytes > 0,
    );
    assert.equal(status.damagedExperts, 0);
  });

  it('mends a damaged slice of its own pack from main, reads the other slice where it was, and leaves the pack as it is', async () => {
    const address = await sliced.serveMain(fetching, sliced.share());
    const directory = sliced.damaged('mended', 'lower', 0, 5);
    sliced.damage(directory, 'upper', 1, 2);
    const bytes = (): Buffer[] => sliced.slices.manifest.files.map(({ name }) => readFileSync(join(directory, name)));
    const before = bytes();
    const dataDirectory = fetching.parent;
    const settings = { slots: 2, mainAddress: address, main: { quality: qualityOf(CRITICAL) } };
    const node = await sliced.workers.start(settings, directory, { ...ENVIRONMENT, dataDirectory });
    const main = await sliced.workers.connect(node, { address });
    main.place(sliced.placement);
    await sliced.check(main, 0, 5, 0, ALL);
    await sliced.check(main, 0, 5, 1);
    await sliced.check(main, 1, 2, 2, [0]);
    await sliced.check(main, 0, 6, 3);
    const status = await main.status(
      'the mended slices are counted',
      ({ fetchReceivedBytes }) => fetchReceivedBytes > 0,
    );
    const slices = sliced.sliceBytes('lower', 0, 5) + sliced.sliceBytes('upper', 1, 2);
    assert.ok(status.fetchReceivedBytes >= slices && status.fetchReceivedBytes < 1.5 * slices);
    assert.deepEqual(bytes(), before);
  });

  it('does not start where main has no slices, and says how to make them', async () => {
    const address = await sliced.serveMain(fetching, new PackServer(sliced.pack, RUNTIME));
    await assert.rejects(
      start('sliced(8,4)', address),
      refusal('PACK_INCOMPLETE', /main has no slices.*odmoe pack --slices/),
    );
    rmSync(fetching.directory, { recursive: true, force: true });
    const other = await sliced.serveMain(fetching, sliced.share());
    await assert.rejects(start('sliced(6,3)', other), refusal('USAGE', /has slices \(8,4\)/));
  });
});
