/** How a worker of sliced experts opens the directory that it has, or fetches into it; and what a start that fails leaves behind. */
import assert from 'node:assert/strict';
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { RunningNode } from '../../engine/daemon/running-node.js';
import { startMain } from '../../main-node/main.js';
import { PackServer } from '../../packs/fetching/pack-server.js';
import { servedSlices } from '../../packs/fetching/served-slices.js';
import { openSlices, type Slices } from '../../packs/slices/open-slices.js';
import { filesOfSlice, serializeSlices } from '../../packs/slices/slices-manifest.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Quality } from '../../shared/settings/quality.js';
import { openWorkerPack, type WorkerPack } from '../../worker-node/fetching/open-worker-pack.js';
import { FetchSetting, type PackService } from '../unit/fetch-test-pack.js';
import { refusal } from '../unit/tiny-pack.js';
import { ENVIRONMENT, openPackSource, RUNTIME } from '../wall.js';
import { testSettings } from './harness/test-settings.js';
import { waitUntil } from './harness/wait-until.js';
import { CRITICAL, qualityOf, SlicedSetting } from './worker-sliced-setting.js';

describe('worker daemon: opening what it has of sliced experts', function () {
  this.timeout(120_000);
  const sliced = new SlicedSetting();
  const fetching = new FetchSetting();

  /** A service of main whose first call of this kind fails so. */
  const failing = (call: 'describe' | 'manifest', error: OdmoeError): PackService & { failures: number } => {
    const good = sliced.share();
    const service = {
      failures: 0,
      describe: () => (call === 'describe' ? failOnce() : undefined, good.describe()),
      manifest: (...args: Parameters<PackServer['manifest']>) => (
        call === 'manifest' ? failOnce() : undefined,
        good.manifest(...args)
      ),
      read: (...args: Parameters<PackServer['read']>) => good.read(...args),
    };
    const failOnce = (): void => {
      service.failures += 1;
      if (service.failures === 1) throw error;
    };
    return service;
  };

  /** Opens the directory as a worker does that starts; it is closed after the test. */
  async function open(
    quality: string,
    mainAddress: string,
    abandoned: AbortSignal = new AbortController().signal,
  ): Promise<WorkerPack> {
    const changes = { mainAddress, main: { quality: qualityOf(quality) } };
    const settings = testSettings('worker', fetching.directory, changes);
    const opened = await openWorkerPack(settings, ENVIRONMENT, sliced.workers.log.logger('worker'), abandoned);
    for (const user of [opened.fetched, opened.partial]) if (user !== null) fetching.users.push(user);
    return opened;
  }

  const names = (): string[] => readdirSync(fetching.directory);
  const locks = (): string[] => names().filter((name) => name.includes('.lock'));

  /** Makes the worker's directory a whole lossless pack, which a worker fetched, or which was given to it. */
  function haveWholePack(fetched: boolean, from = 'lossless'): void {
    cpSync(join(sliced.root, from), fetching.directory, { recursive: true });
    if (!fetched) return;
    const head = { format: 'odmoe-fetching', pack_digest: sliced.pack.packDigest };
    writeFileSync(join(fetching.directory, 'fetched.jsonl'), `${JSON.stringify(head)}\n`);
  }

  it('fetches the slices into a whole pack that was fetched, and computes with them, now and after a restart', async () => {
    haveWholePack(true);
    const address = await sliced.serveMain(fetching, sliced.share());
    const settings = { slots: 2, mainAddress: address, main: { quality: qualityOf(CRITICAL) } };
    for (const position of [0, 2]) {
      const node = await sliced.workers.start(settings, fetching.directory);
      const main = await sliced.workers.connect(node, { address });
      main.send({ kind: 'prospect', prospect: { number: 1, placement: sliced.placement, sources: [] } });
      await main.status('all slices are here', ({ fetchReadyFor }) => fetchReadyFor === 1);
      main.place(sliced.placement);
      await sliced.check(main, 0, 2, position, [1]);
      await sliced.check(main, 1, 3, position + 1);
      await node.stop();
      assert.deepEqual(locks(), []);
      // The second worker finds one slice damaged, and may write into what was fetched.
      sliced.damage(fetching.directory, 'lower', 1, 3);
    }
    assert.ok(existsSync(join(fetching.directory, 'manifest.json')));
    assert.equal((await openSlices(fetching.directory, 'upper')).digest, sliced.slices.digest);
  });

  it('fetches nothing into a pack that was given, and says how to make slices', async () => {
    haveWholePack(false);
    const before = names();
    const address = await sliced.serveMain(fetching, sliced.share());
    await assert.rejects(open(CRITICAL, address), refusal('PACK_INCOMPLETE', /has no slices.*--slices 8,4/));
    assert.deepEqual(names(), before);
  });

  it('reads slices that were made in a fetched pack as they are, without main', async () => {
    haveWholePack(true, 'sliced');
    const { partial, fetched, sliced: opened } = await open(CRITICAL, '127.0.0.1:1');
    assert.deepEqual([partial, fetched], [null, null]);
    assert.equal(opened?.slices.digest, sliced.slices.digest);
  });

  it('leaves no lock when a start is abandoned that goes on with a fetch and waits for main', async () => {
    const address = await sliced.serveMain(fetching, sliced.share());
    const first = await open(CRITICAL, address);
    await first.fetched?.close();
    await first.partial?.close();
    const abandoned = new AbortController();
    const start = assert.rejects(open(CRITICAL, '127.0.0.1:1', abandoned.signal), refusal('CANCELLED', /stopped/));
    await waitUntil(
      'the worker waits for main',
      () => sliced.workers.log.matching('main cannot be used yet').length > 0,
    );
    abandoned.abort();
    await start;
    assert.deepEqual(locks(), []);
    assert.equal((await open(CRITICAL, address)).source.packDigest, sliced.pack.packDigest);
  });

  it('leaves no lock when main has no slices, and starts as soon as it has', async () => {
    mkdirSync(fetching.directory);
    const without = await sliced.serveMain(fetching, new PackServer(sliced.pack, RUNTIME));
    await assert.rejects(open('sliced(8,4)', without), refusal('PACK_INCOMPLETE', /main has no slices/));
    assert.deepEqual(locks(), []);
    const address = await sliced.serveMain(fetching, sliced.share());
    assert.equal((await open('sliced(8,4)', address)).fetched?.digest, sliced.slices.digest);
  });

  it('refuses slices without a threshold before it removes those that it has', async () => {
    const directory = join(sliced.root, 'unmeasured');
    cpSync(sliced.sliced, directory, { recursive: true });
    writeFileSync(join(directory, 'slices.json'), serializeSlices({ ...sliced.slices.manifest, theta: null }));
    const unmeasured = servedSlices(await openSlices(directory), sliced.pack.shape);
    haveWholePack(true);
    const first = await open(CRITICAL, await sliced.serveMain(fetching, sliced.share()));
    await first.fetched?.close();
    const kept = readFileSync(join(fetching.directory, 'fetching-slices.jsonl'), 'utf8');
    const address = await sliced.serveMain(fetching, new PackServer(sliced.pack, RUNTIME, { slices: unmeasured }));
    await assert.rejects(open(CRITICAL, address), refusal('USAGE', /threshold/));
    assert.equal(readFileSync(join(fetching.directory, 'fetching-slices.jsonl'), 'utf8'), kept);
    assert.deepEqual(locks(), []);
    assert.equal((await open('sliced(8,4,low)', address)).fetched?.digest, unmeasured.digest);
    rmSync(directory, { recursive: true });
  });

  it('refuses a slices.json that is not what main described, and does not ask again for it', async () => {
    mkdirSync(fetching.directory);
    const wrong = { ...servedSlices(sliced.slices, sliced.pack.shape), manifestFile: 'manifest.json' };
    const address = await sliced.serveMain(fetching, new PackServer(sliced.pack, RUNTIME, { slices: wrong }));
    await assert.rejects(open(CRITICAL, address), refusal('PACK_CORRUPT', /slices\.json that came has the digest/));
    assert.deepEqual(locks(), []);
    assert.deepEqual(sliced.workers.log.matching('main does not give'), []);
  });

  it('does not ask again for a manifest that main cannot give', async () => {
    mkdirSync(fetching.directory);
    const main = failing('manifest', new OdmoeError('PACK_CORRUPT', 'the manifest is another'));
    await assert.rejects(
      open(CRITICAL, await sliced.serveMain(fetching, main)),
      refusal('PACK_CORRUPT', /the manifest is another/),
    );
    assert.equal(main.failures, 1);
  });

  describe('from a main whose pack has the upper slices alone', () => {
    let running: RunningNode | null = null;
    let upperOnly: string;

    before(() => {
      upperOnly = join(sliced.root, 'upper-only');
      cpSync(sliced.sliced, upperOnly, { recursive: true });
      for (const { name } of filesOfSlice(sliced.slices.manifest, 'lower')) rmSync(join(upperOnly, name));
    });

    afterEach(async () => {
      await running?.stop();
      running = null;
    });

    async function startMainWith(quality: Quality, environment = ENVIRONMENT): Promise<string> {
      const settings = testSettings('main', upperOnly, { id: 'main', main: { quality } });
      running = await startMain(settings, environment, sliced.workers.log.logger('main'));
      return running.address;
    }

    async function readLower(address: string): Promise<void> {
      const source = openPackSource(address);
      const { packDigest } = sliced.pack;
      const slicesDigest = sliced.slices.digest;
      const request = { packDigest, slicesDigest, file: 'slices-00000.lower.bin', offsetBytes: 0, lengthBytes: 16 };
      try {
        for await (const piece of source.read(request, new AbortController().signal))
          assert.fail(`${piece.length} bytes`);
      } finally {
        source.close();
      }
    }

    it('fetches them under a quality that reads no more, and is refused the others in words', async () => {
      const openSlices = (): Promise<Slices> => assert.fail('main has opened its slices already');
      const address = await startMainWith(qualityOf('sliced(8,4,low)'), { ...ENVIRONMENT, openSlices });
      mkdirSync(fetching.directory);
      const { fetched } = await open('sliced(8,4,low)', address);
      assert.equal(fetched?.digest, sliced.slices.digest);
      await assert.rejects(readLower(address), refusal('PACK_INCOMPLETE', /the lower slice of expert 0 of layer 0/));
      rmSync(fetching.directory, { recursive: true });
      await assert.rejects(open(CRITICAL, address), refusal('PACK_INCOMPLETE', /main serves the upper slices.*alone/));
      assert.deepEqual(locks(), []);
    });

    it('finds them also where main itself computes exactly', async () => {
      const source = openPackSource(await startMainWith({ kind: 'exact' }));
      const { slices } = await source.describe(5000);
      source.close();
      assert.equal(slices?.digest, sliced.slices.digest);
      assert.ok(slices.heldUpper.some((bits) => bits !== 0));
      assert.ok(slices.heldLower.every((bits) => bits === 0));
    });
  });

  it('asks again after a failure of the connection', async () => {
    mkdirSync(fetching.directory);
    const main = failing('describe', new OdmoeError('QUEUE_FULL', 'main has too many readers'));
    assert.equal((await open(CRITICAL, await sliced.serveMain(fetching, main))).fetched?.digest, sliced.slices.digest);
    assert.equal(main.failures, 2);
    assert.equal(sliced.workers.log.matching('main does not give its slices').length, 1);
  });
});
