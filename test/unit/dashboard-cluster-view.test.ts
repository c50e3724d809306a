import assert from 'node:assert/strict';
import fc from 'fast-check';
import { MEMORY_KINDS, memoryBar } from '../../dashboard/cluster-view/memory-parts.js';
import { filteredSections, hasRows, MOST_CARDS } from '../../dashboard/cluster-view/node-filter.js';
import { modelFacts } from '../../dashboard/cluster-view/model-facts.js';
import { layersOfGroup, nodeSections } from '../../dashboard/cluster-view/node-sections.js';
import type { MemoryView } from '../../shared/wire/cluster-events.js';
import { sampleCluster, sampleClusterAlone, sampleManyWorkers } from '../dashboard/sample-cluster.js';

const bytes = fc.nat({ max: 1e12 });
const memories: fc.Arbitrary<MemoryView> = fc.record({
  contextBytes: bytes,
  weightBytes: bytes,
  keyValueBytes: bytes,
  prefixBytes: bytes,
  slotBytes: bytes,
  cacheBytes: bytes,
  otherBytes: bytes,
  usedBytes: bytes,
  highWaterBytes: bytes,
  budgetBytes: fc.oneof(fc.constant(0), bytes),
  residentBytes: bytes,
});
const NOTHING: MemoryView = {
  contextBytes: 0,
  weightBytes: 0,
  keyValueBytes: 0,
  prefixBytes: 0,
  slotBytes: 0,
  cacheBytes: 0,
  otherBytes: 0,
  usedBytes: 0,
  highWaterBytes: 0,
  budgetBytes: 0,
  residentBytes: 0,
};

describe('the memory bar of a node', () => {
  it('has its parts in order, side by side, within its length, in proportion to their bytes', () => {
    fc.assert(
      fc.property(memories, (memory) => {
        const { parts, scaleBytes, highWater } = memoryBar(memory);
        let end = 0;
        for (const { begin, length, bytes: partBytes } of parts) {
          assert.equal(begin, end);
          assert.ok(Math.abs(length * scaleBytes - partBytes) < 1);
          end = begin + length;
        }
        assert.ok(end <= 1 + 1e-9 && highWater <= 1);
        const places = parts.map(({ kind }) => MEMORY_KINDS.indexOf(kind));
        assert.deepEqual(
          places,
          [...places].sort((one, other) => one - other),
        );
      }),
    );
  });

  it('is as long as the budget, and is not full without a budget', () => {
    const memory = { ...NOTHING, weightBytes: 60, cacheBytes: 20, usedBytes: 80, highWaterBytes: 90 };
    assert.deepEqual(memoryBar({ ...memory, budgetBytes: 100 }), {
      parts: [
        { kind: 'weights', bytes: 60, begin: 0, length: 0.6 },
        { kind: 'cache', bytes: 20, begin: 0.6, length: 0.2 },
      ],
      scaleBytes: 100,
      highWater: 0.9,
    });
    assert.ok(memoryBar(memory).scaleBytes > 90);
  });

  it('is empty for no memory', () => {
    assert.deepEqual(memoryBar(NOTHING), { parts: [], scaleBytes: 0, highWater: 0 });
  });
});

describe('node sections on the page', () => {
  const titlesAndNodes = (cluster: Parameters<typeof nodeSections>[0]): [string, string[]][] =>
    nodeSections(cluster).map(({ title, nodes }) => [title, nodes.map(({ id }) => id)]);

  it('are main and shadow, then groups, then the nodes without a group by role', () => {
    const cluster = sampleCluster(0);
    assert.deepEqual(titlesAndNodes(cluster), [
      ['Main and shadow', ['desk', 'tower']],
      ['Group 0', ['orin-1', 'orin-2']],
      ['Group 1', ['orin-3', 'orin-4']],
      ['Fetching', ['orin-5']],
    ]);
    const nodes = cluster.nodes.map((node) => ({ ...node, group: null }));
    assert.deepEqual(titlesAndNodes({ ...cluster, nodes, groups: [['orin-1']] }), [
      ['Main and shadow', ['desk', 'tower']],
      ['Group 0', ['orin-1']],
      ['Unplaced workers', ['orin-2', 'orin-3']],
      ['Fetching', ['orin-5']],
      ['Lost', ['orin-4']],
    ]);
    assert.deepEqual(
      nodeSections({ ...cluster, nodes, groups: [['orin-1']] }).map(({ look }) => look),
      ['wide', 'plain', 'plain', 'plain', 'urgent'],
    );
    const drained = nodes.map((node) => (node.id === 'orin-2' ? { ...node, state: 'mayGo' as const } : node));
    assert.deepEqual(titlesAndNodes({ ...cluster, nodes: drained, groups: [['orin-1']] }).slice(2, 5), [
      ['Unplaced workers', ['orin-3']],
      ['Fetching', ['orin-5']],
      ['Drained', ['orin-2']],
    ]);
    assert.deepEqual(titlesAndNodes(sampleClusterAlone()), [['Main and shadow', ['desk']]]);
  });

  it('each appear once, whatever the groups', () => {
    const cluster = sampleCluster(0);
    const ids = cluster.nodes.filter(({ role }) => role === 'worker').map(({ id }) => id);
    fc.assert(
      fc.property(fc.subarray(ids), fc.nat({ max: ids.length }), (grouped, split) => {
        const groups = [grouped.slice(0, split), grouped.slice(split)];
        const shown = nodeSections({ ...cluster, groups }).flatMap(({ nodes }) => nodes.map(({ id }) => id));
        assert.deepEqual(shown.sort(), cluster.nodes.map(({ id }) => id).sort());
      }),
    );
  });

  it('name the layers of each group', () => {
    assert.deepEqual(layersOfGroup(1, 3, 8), [1, 4, 7]);
    const [, first] = nodeSections({ ...sampleCluster(0), expertLayers: 5 });
    assert.equal(first?.note, 'Experts of layers 0, 2, 4');
  });
});

describe('the nodes of a large cluster on the page', () => {
  const cluster = { ...sampleCluster(0), ...sampleManyWorkers(16) };
  const idsOf = (typed: string): string[] =>
    filteredSections(nodeSections(cluster), typed).flatMap(({ nodes }) => nodes.map(({ id }) => id));

  it('have rows from the ninth worker on', () => {
    const counts = [MOST_CARDS, MOST_CARDS + 1].map((count) => hasRows(sampleManyWorkers(count).nodes));
    assert.deepEqual(counts, [false, true]);
  });

  it('stand as people count, whatever the order in which main tells of them', () => {
    const [, ...groups] = nodeSections({ ...cluster, groups: [cluster.groups.flat()] });
    assert.deepEqual(
      groups.flatMap(({ nodes }) => nodes.map(({ id }) => id)),
      Array.from({ length: 16 }, (_, index) => `orin-${index + 1}`),
    );
  });

  it('are found by a part of the name, by the state, by the role and by the group', () => {
    assert.deepEqual(idsOf('ORIN-1').length, 8);
    assert.deepEqual(idsOf('n-12'), ['orin-12']);
    assert.deepEqual(idsOf('lost'), ['orin-3']);
    assert.deepEqual(idsOf(' shad '), ['tower']);
    assert.deepEqual(idsOf('group 1'), ['orin-3', 'orin-4']);
    assert.deepEqual(idsOf('group 1 up'), ['orin-4']);
    assert.deepEqual(idsOf('group 01'), ['orin-3', 'orin-4']);
  });

  it('are all there where nothing is typed, and none where nothing fits', () => {
    for (const typed of ['', '   ']) assert.equal(idsOf(typed).length, cluster.nodes.length);
    for (const typed of ['nobody', 'group 99', 'group 1 group 2', '(']) assert.deepEqual(idsOf(typed), []);
  });

  it('are found by no number of a group: 2 is a part of names alone', () => {
    assert.deepEqual(idsOf('2'), ['orin-2', 'orin-12']);
  });
});

describe("the model's facts", () => {
  it('say where the context goes past what the model was made for', () => {
    const cluster = sampleCluster(0);
    const contextOf = (contextPositions: number): string | undefined =>
      modelFacts({ ...cluster, model: { ...cluster.model, contextPositions } }).find((fact) =>
        fact.startsWith('context'),
      );
    assert.match(contextOf(32_768) ?? '', /^context 32.768$/);
    assert.match(contextOf(65_536) ?? '', /^context 65.536, past the 32.768 that the model was made for: .* no sense$/);
  });
});
