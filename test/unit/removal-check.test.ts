import assert from 'node:assert/strict';
import { MAIN_SEARCH_MS, REMOVAL_CHECK_MS, startRemovalCheck } from '../../engine/daemon/removal-check.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { VirtualRuntime } from '../../shared/base/runtime/virtual-runtime.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import type { Discovery } from '../../shared/transport/discovery/discovery.js';
import type { Transport } from '../../shared/transport/transport.js';
import { ScenarioTrust } from '../../simulator/faults/scenario-trust.js';
import { testSettings } from '../integration/harness/test-settings.js';
import { Lines } from './log-lines.js';
import { plainIdentity } from './plain-identity.js';
import { onVirtualClock } from './virtual-run.js';

const REMOVED = new OdmoeError('TRUST_REFUSED', 'w1 was removed on 2026-11-27');
const TRANSIENT = new OdmoeError('NO_MAIN', 'nobody answers');

interface Surroundings {
  /** Daemons that multicast finds. */
  readonly found: readonly { role: 'main' | 'worker'; address: string }[];
  /** Main's reply to each question, in order; the last one again and again. Null: main does not refuse the node. */
  readonly replies: readonly (OdmoeError | null)[];
  readonly hasMain?: () => boolean;
  readonly settings?: Partial<NodeSettings>;
  readonly isTrusted?: boolean;
}

/** Lets a worker check for its removal for that time. Returns the addresses that it asked, and the reasons for which it would have ended. */
function checkFor(forMs: number, surroundings: Surroundings): Promise<{ asked: string[]; ends: string[] }> {
  return onVirtualClock(async (runtime: VirtualRuntime) => {
    const { found, replies, hasMain = () => false, isTrusted = true } = surroundings;
    const settings = {
      ...testSettings('worker', 'no-pack', { provider: 'mdns', mainAddress: null }),
      ...surroundings.settings,
    };
    const asked: string[] = [];
    const ends: string[] = [];
    const transport = {
      call: async (address: string) => {
        const reply = replies[Math.min(asked.length, replies.length - 1)] ?? null;
        asked.push(address);
        if (reply !== null) throw reply;
        return { certificate: Buffer.alloc(0), roster: Buffer.alloc(0) };
      },
    } as unknown as Transport;
    const discovery: Discovery = {
      advertise: () => assert.fail('a check advertises nothing'),
      watchPeers: async (_settings, onPeer) => {
        for (const peer of found) onPeer({ ...plainIdentity(), ...peer, authority: null });
        return { stop: async () => undefined };
      },
    };
    const worker = { id: 'w1', role: 'worker' } as const;
    const trust = isTrusted ? new ScenarioTrust('home', [worker], []).open(worker, runtime) : null;
    const environment = { runtime, transport, discovery, trust };
    const giveUp = ({ message }: OdmoeError): void => void ends.push(message);
    const check = startRemovalCheck({ settings, environment, hasMain, giveUp }, new Lines());
    await runtime.sleep(forMs);
    await check?.stop();
    return { asked, ends };
  });
}

const MAIN = { role: 'main', address: '10.0.0.1:7600' } as const;
const ONE_CHECK_MS = REMOVAL_CHECK_MS + MAIN_SEARCH_MS + 1;

describe('a node that finds main by mDNS and that main does not dial', () => {
  it('ends by the words of main when main has refused it twice', async () => {
    const { asked, ends } = await checkFor(ONE_CHECK_MS, { found: [MAIN], replies: [REMOVED] });
    assert.deepEqual(asked, [MAIN.address, MAIN.address]);
    assert.deepEqual(ends, [REMOVED.message]);
  });

  it('goes on, and asks again later, where main answers, is silent, or refuses it only once', async () => {
    for (const replies of [[null], [TRANSIENT], [REMOVED, null], [REMOVED, TRANSIENT]]) {
      const surroundings = { found: [MAIN], replies: [...replies, ...replies] };
      const { asked, ends } = await checkFor(2 * ONE_CHECK_MS, surroundings);
      assert.equal(asked.length, 2 * replies.length);
      assert.deepEqual(ends, []);
    }
  });

  it('asks nobody while main serves it, before the first check, or where it finds no main', async () => {
    const worker = { role: 'worker', address: '10.0.0.2:7601' } as const;
    const searches: [number, Surroundings][] = [
      [ONE_CHECK_MS, { found: [MAIN], replies: [REMOVED], hasMain: () => true }],
      [REMOVAL_CHECK_MS - 1, { found: [MAIN], replies: [REMOVED] }],
      [ONE_CHECK_MS, { found: [worker], replies: [REMOVED] }],
    ];
    for (const [forMs, surroundings] of searches) {
      assert.deepEqual(await checkFor(forMs, surroundings), { asked: [], ends: [] });
    }
  });

  it('asks few of the mains that one host advertises', async () => {
    const found = Array.from({ length: 100 }, (_, port) => ({ ...MAIN, address: `10.0.0.1:${port + 1}` }));
    assert.equal((await checkFor(ONE_CHECK_MS, { found, replies: [TRANSIENT] })).asked.length, 2);
  });

  it('asks nobody without an authority, and leaves it to the joining where main has an address in the settings', async () => {
    for (const changes of [{ isTrusted: false }, { settings: { mainAddress: MAIN.address } }]) {
      assert.deepEqual(await checkFor(ONE_CHECK_MS, { found: [MAIN], replies: [REMOVED], ...changes }), {
        asked: [],
        ends: [],
      });
    }
  });
});
