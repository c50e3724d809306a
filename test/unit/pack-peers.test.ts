import assert from 'node:assert/strict';
import { MAX_STREAMS_PER_PEER, PackPeers } from '../../packs/fetching/pack-peers.js';
import { PackServer } from '../../packs/fetching/pack-server.js';
import type { Pack } from '../../packs/format/open-pack.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { PackSource } from '../../shared/transport/node-clients.js';
import { waitUntil } from '../integration/harness/wait-until.js';
import { RUNTIME } from '../wall.js';
import { SILENT, testPack } from './fetch-test-pack.js';

const [GIVEN, NAMED, OTHER] = ['192.0.2.1:7600', '192.0.2.9:7600', '192.0.2.2:7600'] as const;

describe('a main with several addresses', () => {
  let pack: Pack;
  let peers: PackPeers;
  let answering: Set<string>;
  let asked: string[];
  before(async () => (pack = await testPack()));

  beforeEach(() => {
    asked = [];
    const share = new PackServer(pack, RUNTIME);
    const connect = (address: string): PackSource => ({
      describe: () => {
        asked.push(address);
        if (!answering.has(address)) return Promise.reject(new OdmoeError('TIMEOUT', `${address} is silent`));
        return Promise.resolve(share.describe());
      },
      read: () => assert.fail('nothing is read'),
      manifest: () => assert.fail('nothing is read'),
      close: () => undefined,
    });
    const { expertLayers: layers, experts } = pack.shape;
    const { packDigest } = pack;
    const onDescribed = (): void => undefined;
    peers = new PackPeers({ packDigest, layers, experts, connect, runtime: RUNTIME, log: SILENT, onDescribed });
  });

  afterEach(() => peers.close());

  /** Sets the addresses, and waits until those that answer have answered. */
  async function know(addresses: readonly string[], mains: readonly string[], others: string[] = []): Promise<void> {
    answering = new Set(addresses);
    peers.setAddresses(mains, others);
    await waitUntil('all have been asked', () => new Set(asked).size === mains.length + others.length);
  }

  const chosen = (): string | null => peers.choose(0, 0)?.address ?? null;

  it('is asked at its first address, and at no other while that is fully busy', async () => {
    await know([GIVEN, NAMED], [GIVEN, NAMED]);
    await waitUntil('the first has answered', () => chosen() === GIVEN);
    const main = peers.choose(0, 0);
    assert.ok(main !== null);
    main.streams = MAX_STREAMS_PER_PEER;
    assert.deepEqual([chosen(), peers.chooseWhole()], [null, null]);
  });

  it('is asked at its next address where the first does not answer, and after all others', async () => {
    await know([NAMED, OTHER], [GIVEN, NAMED], [OTHER]);
    await waitUntil('another has answered', () => chosen() === OTHER);
    const other = peers.choose(0, 0);
    assert.ok(other !== null);
    other.streams = 1;
    await waitUntil('main has answered', () => chosen() === NAMED);
    assert.equal(peers.chooseWhole()?.address, NAMED);
  });

  it('is asked at its next address where the first is lost later', async () => {
    await know([GIVEN, NAMED], [GIVEN, NAMED]);
    await waitUntil('the first has answered', () => chosen() === GIVEN);
    const main = peers.choose(0, 0);
    assert.ok(main !== null);
    peers.failed(main, new OdmoeError('WORKER_LOST', 'the connection broke'));
    await waitUntil('the next is chosen', () => chosen() === NAMED);
  });
});
