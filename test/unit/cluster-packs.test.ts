import assert from 'node:assert/strict';
import { clusterPackLines, clusterPacks } from '../../cli/models/cluster-packs.js';
import { emptyNodeStatus } from '../../shared/wire/node-status.js';
import type { NodeStatus, Placement, RoleName, StatusReply } from '../../shared/wire/messages.js';
import { plainIdentity } from './plain-identity.js';

const DIGEST = 'abcdef0123456789';

function node(id: string, role: RoleName, more: Partial<NodeStatus> = {}, packDigest = DIGEST): NodeStatus {
  const identity = plainIdentity({ id, role, cluster: 'home', modelName: 'storyteller', packDigest });
  return { ...emptyNodeStatus(identity), ...more };
}

function status(nodes: NodeStatus[], placed: string[]): StatusReply {
  const placement = { workers: placed.map((id) => ({ id })) } as unknown as Placement;
  return { nodes, placement, drained: [] } as unknown as StatusReply;
}

function linesOf(nodes: NodeStatus[], placed: string[]): string[] {
  const packs = clusterPacks(status(nodes, placed));
  assert.ok(packs !== null);
  return clusterPackLines(packs).map((line) => line.trimEnd().replace(/ {2,}/g, ' | '));
}

describe('the packs of a cluster', () => {
  it('are listed by node as people count, whole, in part or being fetched', () => {
    const nodes = [
      node('w10', 'ROLE_WORKER'),
      node('main', 'ROLE_MAIN'),
      node('w2', 'ROLE_WORKER', { fetchNeededBytes: 2e9, fetchHeldBytes: 5e8, fetchProblem: 'the disk is full' }),
      node('w1', 'ROLE_WORKER', { fetchNeededBytes: 2e9, fetchHeldBytes: 2e9 }),
      node('shadow', 'ROLE_SHADOW'),
      node('w3', 'ROLE_WORKER', { damagedExperts: 2 }),
      node('w4', 'ROLE_WORKER'),
    ];
    assert.deepEqual(linesOf(nodes, ['w1', 'w10', 'w3']), [
      'cluster "home" serves storyteller (abcdef012345); connected to its main:',
      'node | role | what it has of the pack',
      'main | main | whole',
      'shadow | shadow | whole',
      'w1 | worker | the part that it needs, 2.00 GB',
      'w2 | worker | fetching 500 MB of 2.00 GB (25 %); held up: the disk is full',
      'w3 | worker | whole; 2 experts are damaged and fetched anew when needed',
      'w4 | worker | not told yet',
      'w10 | worker | whole',
    ]);
  });

  it('are told with what a script needs', () => {
    const nodes = [node('main', 'ROLE_MAIN'), node('w', 'ROLE_WORKER', { fetchNeededBytes: 10, fetchHeldBytes: 4 })];
    const packs = clusterPacks(status(nodes, []));
    assert.deepEqual([packs?.cluster, packs?.name, packs?.digest], ['home', 'storyteller', DIGEST]);
    const pack = { name: 'storyteller', digest: DIGEST, problem: '', damagedExperts: 0 };
    assert.deepEqual(packs?.nodes, [
      { ...pack, id: 'main', role: 'main', state: 'whole', neededBytes: 0, heldBytes: 0 },
      { ...pack, id: 'w', role: 'worker', state: 'fetching', neededBytes: 10, heldBytes: 4 },
    ]);
  });

  it('are at most 64 lines, and words of a peer stay on one', () => {
    const workers = Array.from({ length: 100 }, (_, index) => node(`w${index}`, 'ROLE_WORKER'));
    const lines = linesOf([node('main', 'ROLE_MAIN'), ...workers], []);
    assert.deepEqual([lines.length, lines.at(-1)], [67, 'and 37 more, which --json lists']);
    const liar = node('w', 'ROLE_WORKER', { fetchProblem: 'no\ncluster "home" serves evil' }, 'fedcba9876543210');
    const said = linesOf([node('main', 'ROLE_MAIN'), liar], []);
    assert.equal(said.length, 4);
    assert.match(said[3] ?? '', /of another pack, storyteller \(fedcba987654\); held up: no\\ncluster/);
  });

  it('are unknown where main names itself not', () => {
    assert.equal(clusterPacks(status([node('w', 'ROLE_WORKER')], [])), null);
  });
});
