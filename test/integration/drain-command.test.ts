import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { odmoeCommand } from '../../cli/demo/daemon-process.js';
import { OperatorService } from '../../main-node/enrolment/operator-service.js';
import type { DrainState } from '../../shared/decisions/draining/drain-state.js';
import type { DrainedNode, StatusReply } from '../../shared/wire/messages.js';
import { emptyNodeStatus } from '../../shared/wire/node-status.js';
import { Lines } from '../unit/log-lines.js';
import { plainIdentity } from '../unit/plain-identity.js';
import { NOT_CONNECTED } from '../unit/stored-main.js';
import { TrustedServers } from '../unit/trusted-servers.js';

const TIME_LIMIT_MS = 60_000;
const STATUS: StatusReply = {
  nodes: [],
  placement: null,
  activeSequences: 0,
  queuedRequests: 0,
  problems: [],
  requests: 0,
  tokens: 0,
  groupReason: '',
  layerWaits: [],
  workerWaits: [],
  links: [],
  passes: null,
  workerHops: [],
  httpAddress: '',
  ownWorkerId: '',
};

const drainedAs = (state: DrainState, openExperts = 0): DrainedNode => ({
  id: 'w1',
  role: 'worker',
  state,
  openExperts,
});

/** How main answers: by the first to the order, by the others to questions about its status. */
interface Told {
  readonly drained: DrainedNode | null;
  readonly later: readonly Partial<StatusReply>[];
}

describe('odmoe drain', function () {
  this.timeout(2 * TIME_LIMIT_MS);
  let servers: TrustedServers;
  let orders: string[];

  beforeEach(() => {
    servers = new TrustedServers();
    orders = [];
  });
  afterEach(() => servers.stop());

  async function run(
    { drained, later }: Told,
    ...words: string[]
  ): Promise<{ status: number; stdout: string; stderr: string }> {
    // The command reads a status first, for the ids that its user may mean.
    const statuses = [{}, ...later];
    const connected = {
      ...NOT_CONNECTED,
      drain: ({ id, undo }: { id: string; undo: boolean }) => {
        orders.push(`${undo ? 'undo' : 'drain'} ${id}`);
        return drained;
      },
    };
    const address = await servers.serve(null, {
      operator: new OperatorService(null, connected, new Lines()),
      cluster: {
        join: () => assert.fail('nobody joins'),
        status: () => ({ ...STATUS, ...statuses.shift() }),
      },
    });
    const [executable, ...rest] = odmoeCommand(['drain', 'w1', '--main', address, ...words]);
    return new Promise((resolve) => {
      execFile(executable, rest, { timeout: TIME_LIMIT_MS }, (error, stdout, stderr) => {
        resolve({ status: error === null ? 0 : Number(error.code), stdout, stderr });
      });
    });
  }

  it('waits until the node may go, without a second order', async () => {
    const later = [{ drained: [drainedAs('finishing', 1)] }, { drained: [drainedAs('may go')] }];
    const { status, stdout } = await run({ drained: drainedAs('finishing', 3), later });
    assert.equal(
      stdout,
      'w1 is draining: it gets no new work, and ends 3 experts first.\n' +
        'w1 is drained and may go: nothing in the cluster needs it.\n',
    );
    assert.deepEqual([status, orders], [0, ['drain w1']]);
  });

  it('waits until others hold what they need without the node', async () => {
    const lacking = (fetchHeldBytes: number) => {
      const other = { ...emptyNodeStatus(plainIdentity({ id: 'w2' })), fetchNeededBytes: 3_000_000, fetchHeldBytes };
      return { drained: [drainedAs('may go')], nodes: [other] };
    };
    const later = [3, 1, 2, 3, 3, 3].map((megabytes) => lacking(megabytes * 1_000_000));
    const { status, stdout } = await run({ drained: drainedAs('may go'), later });
    assert.match(
      stdout,
      /^w1 is drained; others fetch .* of its experts first, from it, too, as long as it runs\.\nw1 is drained and may go: nothing in the cluster needs it\.\n$/,
    );
    assert.equal(status, 0);
  });

  it('ends when the node has left meanwhile, and prints one object with --json', async () => {
    const { status, stdout } = await run({ drained: drainedAs('finishing', 3), later: [{}] }, '--json');
    assert.deepEqual(JSON.parse(stdout), { id: 'w1', role: 'worker', state: 'may go', open_experts: 0 });
    assert.equal(status, 0);
  });

  it('fails with words where the node is needed, and where it gets work again', async () => {
    const needed = await run({ drained: drainedAs('needed'), later: [] });
    assert.equal(needed.status, 3);
    assert.match(needed.stderr, /no other worker is there .*start one first.*--undo.*\[NO_WORKERS\]/);
    const nodes = [emptyNodeStatus(plainIdentity({ id: 'w1' }))];
    const undone = await run({ drained: drainedAs('finishing', 1), later: [{ nodes }] });
    assert.equal(undone.status, 2);
    assert.match(undone.stderr, /w1 gets work again: somebody has undone its drain.*\[USAGE\]/);
  });

  it('gives the node work again with --undo', async () => {
    const { status, stdout } = await run({ drained: null, later: [] }, '--undo');
    assert.deepEqual([status, stdout, orders], [0, 'w1 gets work.\n', ['undo w1']]);
  });
});
