import assert from 'node:assert/strict';
import { ARITHMETIC_VERSION, NEWEST_PROTOCOL } from '../../shared/wire/limits.js';
import { type NodeVersions, newestProtocolOf, RELEASE_VERSIONS } from '../../shared/wire/versions.js';
import { assertSameAnswer, referenceAnswer, requestFor, type CollectedAnswer } from '../integration/harness/answers.js';
import { goldenMessages, type JsonValue, toJson } from '../unit/golden-messages.js';
import { stopVirtualCluster, VirtualCluster } from './virtual-cluster.js';

const PROMPT = Array.from({ length: 40 }, (_, index) => 1 + ((index * 37) % 250));
const REQUEST = requestFor(PROMPT, { maxTokens: 24, logprobs: 5 });
const NEWER: NodeVersions = { ...RELEASE_VERSIONS, newestProtocol: NEWEST_PROTOCOL + 1 };
const WORKERS = ['worker-0', 'worker-1', 'worker-2'];

describe('a simulated cluster of two releases', () => {
  let expected: CollectedAnswer;
  let cluster: VirtualCluster;

  before(async () => {
    expected = await referenceAnswer('tiny', REQUEST);
  });

  afterEach(async function () {
    await stopVirtualCluster(this, cluster);
  });

  /** A cluster in which these nodes are of the newer release. */
  const clusterOf = async (newer: readonly string[]): Promise<VirtualCluster> => {
    const versions = new Map(newer.map((id) => [id, NEWER]));
    return VirtualCluster.start({ workers: WORKERS.length, shadow: 'int8', versions });
  };

  const newestOf = async (): Promise<Record<string, number>> => {
    const { nodes } = await cluster.status();
    return Object.fromEntries(nodes.map(({ identity }) => [identity.id, newestProtocolOf(identity)]));
  };

  const mixes: Record<string, readonly string[]> = {
    'main is older': [...WORKERS, 'shadow'],
    'main is newer': ['main'],
    'half of the nodes are newer': ['main', 'worker-1'],
  };
  for (const [what, newer] of Object.entries(mixes)) {
    it(`gives the same answer to the bit where ${what}`, async () => {
      cluster = await clusterOf(newer);
      assertSameAnswer(await cluster.ask(REQUEST), expected);
      const stated = await newestOf();
      for (const id of ['main', 'shadow', ...WORKERS]) {
        assert.equal(stated[id], newer.includes(id) ? NEWER.newestProtocol : NEWEST_PROTOCOL, id);
      }
    });
  }

  it('gives the same answer to the bit while its workers are updated one after another', async () => {
    cluster = await clusterOf([]);
    const due = new Map(WORKERS.map((id, index) => [4 + 6 * index, id]));
    const answer = cluster.ask(REQUEST, undefined, async (count) => {
      const id = due.get(count);
      if (id === undefined) return;
      cluster.node(id).kill();
      cluster.versions.set(id, NEWER);
      await cluster.startAgain(id);
      await cluster.waitForRoster(WORKERS.length, 1);
    });
    assertSameAnswer(await answer, expected);
    const stated = await newestOf();
    assert.deepEqual(
      WORKERS.map((id) => stated[id]),
      WORKERS.map(() => NEWER.newestProtocol),
    );
  });

  it('tells its clients no text, list or message that release 0.2 cannot skip', async () => {
    cluster = await clusterOf([]);
    const answer = await cluster.ask(REQUEST);
    const status = await cluster.status();
    const known = new Set(goldenMessages('0.2').flatMap(({ json }) => fieldNames(json)));
    const told = fieldNames(toJson([answer.started, answer.tokens, answer.finished, status])).filter(
      (name) => !known.has(name),
    );
    assert.deepEqual([...new Set(told)].sort(), []);
  });

  it('gives no work to a worker of another arithmetic, and says why until it is updated', async () => {
    const otherBits = { ...RELEASE_VERSIONS, arithmeticVersion: ARITHMETIC_VERSION + 1 };
    cluster = await VirtualCluster.start({ workers: 2, versions: new Map([['late', otherBits]]) });
    await cluster.addWorker('late');
    await cluster.waitUntil('main knows it', async () => {
      const { nodes } = await cluster.status();
      return nodes.some(({ identity }) => identity.id === 'late');
    });
    assertSameAnswer(await cluster.ask(REQUEST), expected);
    const { placement, problems } = await cluster.status();
    assert.deepEqual(
      placement?.workers.map(({ id }) => id),
      ['worker-0', 'worker-1'],
    );
    assert.deepEqual(
      problems.map(({ id, code }) => [id, code]),
      [['late', 'ARITHMETIC_DIFFERS']],
    );
    cluster.node('late').kill();
    cluster.versions.delete('late');
    await cluster.startAgain('late');
    await cluster.waitForRoster(3, 0);
    assert.deepEqual((await cluster.status()).problems, []);
    assertSameAnswer(await cluster.ask(REQUEST), expected);
  });
});

/** Names of the fields that have a length on the wire, and are there. */
function fieldNames(value: JsonValue): string[] {
  if (Array.isArray(value)) return value.flatMap(fieldNames);
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([name, field]) => {
    // A decoder sets bytes that were left out, which are none.
    if (isMessage(field) && 'hex' in field && field.hex === '') return [];
    const isThere =
      typeof field === 'string' ? field !== '' : Array.isArray(field) ? field.length > 0 : isMessage(field);
    return isThere ? [name, ...fieldNames(field)] : [];
  });
}

function isMessage(value: JsonValue): value is object & JsonValue {
  return typeof value === 'object' && value !== null;
}
