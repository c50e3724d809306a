import assert from 'node:assert/strict';
import type { ExpertId } from '../../shared/model/expert-id.js';
import { FetchReport, REPORT_INTERVAL_MS } from '../../engine/fetching/fetch-report.js';
import { problemOf } from '../../engine/fetching/await-main.js';
import { dataDirectory } from '../../engine/environment/node-environment.js';
import { inTurn, ProspectFetch } from '../../worker-node/fetching/prospect-fetch.js';
import type { FetchProgress } from '../../packs/fetching/expert-fetcher.js';
import { PackGate } from '../../engine/trust/pack-gate.js';
import { neededExperts } from '../../shared/decisions/placement/needed-experts.js';
import { planPlacement } from '../../shared/decisions/placement/plan-placement.js';
import type { NodeIdentity } from '../../shared/wire/messages.js';
import { TestLog } from '../integration/harness/test-log.js';
import { plainIdentity } from './plain-identity.js';

const MAIN: NodeIdentity = plainIdentity({
  id: 'm',
  role: 'ROLE_MAIN',
  cluster: 'home',
  modelName: 'x',
  packDigest: 'd'.repeat(64),
  address: '',
});

/** Keeps what it is told to fetch, and from where. */
class KeptProspect extends ProspectFetch {
  isPartial = true;
  heldBytes = 0;
  addresses: readonly string[] = [];
  needed: readonly ExpertId[] = [];

  get progress(): FetchProgress {
    const { heldBytes } = this;
    return { neededBytes: 1, heldBytes, receivedBytes: heldBytes, ready: heldBytes === 1, problem: '' };
  }

  arrive(): void {
    this.heldBytes = 1;
    this.fetched();
  }

  protected setAddresses(mainAddresses: readonly string[], others: readonly string[]): void {
    this.addresses = [...mainAddresses, ...others];
  }

  protected need(experts: readonly ExpertId[]): void {
    this.needed = experts;
  }
}

describe('a worker without a pack', () => {
  it('asks only the main of its own cluster and version', () => {
    assert.equal(problemOf(MAIN, { cluster: 'home' }), null);
    assert.match(problemOf(MAIN, { cluster: 'lab' }) ?? '', /"home".*"lab".*--cluster/);
    assert.match(problemOf({ ...MAIN, role: 'ROLE_SHADOW' }, { cluster: 'home' }) ?? '', /no main/);
    assert.match(problemOf({ ...MAIN, protocolVersion: 99 }, { cluster: 'home' }) ?? '', /protocol 99/);
    for (const packDigest of ['', '../../../etc', 'D'.repeat(64), 'd'.repeat(63), `${'d'.repeat(64)}\n`]) {
      assert.match(problemOf({ ...MAIN, packDigest }, { cluster: 'home' }) ?? '', /SHA-256/);
    }
  });

  it("stores the pack in the user's data directory", () => {
    assert.equal(dataDirectory({ XDG_DATA_HOME: '/data' }), '/data/odmoe');
    assert.match(dataDirectory({ XDG_DATA_HOME: 'relative' }), /\/\.local\/share\/odmoe$/);
    assert.match(dataDirectory({}), /\/\.local\/share\/odmoe$/);
  });

  it('fetches its needed experts, and each worker begins at another one', () => {
    const workers = ['a', 'b', 'c', 'd'].map((id) => ({ id, address: '', slots: 1 }));
    const placement = planPlacement({
      epoch: 0,
      workers,
      layers: 8,
      experts: 8,
      expertsPerToken: 2,
      groupSize: 4,
    });
    const key = ({ layer, expert }: ExpertId): number => layer * 8 + expert;
    const firsts = workers.map(({ id }) => {
      const order = inTurn(placement, id).map(key);
      assert.deepEqual(
        [...order].sort((left, right) => left - right),
        neededExperts(placement, id).map(key),
      );
      return order[0];
    });
    assert.deepEqual(firsts, [0, 16, 32, 48]);
    assert.deepEqual(inTurn(placement, 'stranger'), []);
  });

  it('is ready only for a prospect of the main that it serves now', () => {
    const placement = planPlacement({
      epoch: 0,
      workers: [{ id: 'a', address: '', slots: 1 }],
      layers: 2,
      experts: 4,
      expertsPerToken: 2,
      groupSize: 1,
    });
    const readyFor: number[] = [];
    const noteReady = (): void => void readyFor.push(fetch.status.fetchReadyFor);
    const gate = new PackGate(null, 'pack', MAIN.packDigest);
    const fetch = new KeptProspect({ id: 'a', mainAddress: null }, noteReady, gate);
    fetch.takeMain('m:1');
    fetch.takeProspect({ number: 2, placement, sources: ['b:1'] }, 'm:1');
    assert.equal(fetch.status.fetchReadyFor, 0);
    fetch.arrive();
    assert.deepEqual(readyFor, [2]);

    // Main was restarted, and counts its prospects from 1.
    fetch.takeMain('m:2');
    assert.equal(fetch.status.fetchReadyFor, 0, 'number 2 would be another prospect of this main');
    assert.deepEqual(fetch.addresses, ['m:2', 'b:1'], 'it still fetches from others');
    assert.equal(fetch.needed.length, 8, 'and the same experts');
    fetch.arrive();
    assert.deepEqual(readyFor, [2], 'it has no news for this main');
    fetch.takeProspect({ number: 1, placement, sources: ['c:1'] }, 'm:2');
    assert.deepEqual(readyFor, [2, 1]);
    assert.deepEqual(fetch.addresses, ['m:2', 'c:1']);

    fetch.isPartial = false;
    fetch.takeMain('m:3');
    assert.deepEqual(fetch.addresses, ['m:3'], 'it has all, and asks main alone for what proves damaged');
  });

  it('reports its progress regularly, each problem once, and the end', () => {
    const log = new TestLog();
    const report = new FetchReport(log.logger('w'));
    const at = (heldBytes: number, nowMs: number, problem = ''): void => {
      const progress: FetchProgress = {
        neededBytes: 4096,
        heldBytes,
        receivedBytes: 0,
        ready: heldBytes === 4096,
        problem,
      };
      report.take(progress, nowMs);
    };
    at(4096, 0);
    assert.equal(log.matching('info').length, 0);
    at(0, 100);
    at(1024, 200);
    at(1024, 300, 'the disk is full');
    at(1024, 400, 'the disk is full');
    at(2048, REPORT_INTERVAL_MS + 100);
    at(2048, 3 * REPORT_INTERVAL_MS);
    at(4096, 3 * REPORT_INTERVAL_MS + 1);
    at(4096, 5 * REPORT_INTERVAL_MS);
    const events = log.matching(' ').map((line) => line.replace(/^\S+ w: /, ''));
    assert.deepEqual(events, [
      'info fetching experts {"done":"0 bytes of 4 KiB","percent":0}',
      'warn fetching experts is held up {"reason":"the disk is full"}',
      'info fetching experts {"done":"2 KiB of 4 KiB","percent":50}',
      'info all experts that are needed are here {"bytes":4096}',
    ]);
  });
});
