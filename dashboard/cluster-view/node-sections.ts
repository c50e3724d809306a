import type { ClusterData, NodeView } from '../../shared/wire/cluster-events.js';
import { naturalOrder } from '../../shared/base/text/natural-order.js';
import { formatLayers } from '../format/quantities.js';

export interface NodeSection {
  title: string;
  note: string;
  /** 'wide': main and shadow, which have few numbers. 'urgent': shown first in a layout of one column. */
  look: 'wide' | 'plain' | 'urgent';
  nodes: NodeView[];
}

type Placed = Pick<ClusterData, 'nodes' | 'groups' | 'expertLayers'>;

/** The layers of a group: layer l is served by group l mod the number of groups. */
export function layersOfGroup(group: number, groups: number, expertLayers: number): number[] {
  return Array.from({ length: expertLayers }, (_, layer) => layer).filter((layer) => layer % groups === group);
}

function groupOf(node: NodeView, groups: readonly (readonly string[])[]): number | null {
  const groupIndex = groups.findIndex((ids) => ids.includes(node.id));
  if (groupIndex >= 0) return groupIndex;
  return node.group !== null && node.group < groups.length ? node.group : null;
}

/** Every node once: main and shadow, each group, unplaced workers, and lost workers, as people count. Empty sections are left out. */
export function nodeSections({ nodes, groups, expertLayers }: Placed): NodeSection[] {
  const workers = nodes.filter(({ role }) => role === 'worker').sort((left, right) => naturalOrder(left.id, right.id));
  const grouped = workers.map((node) => ({ node, group: groupOf(node, groups) }));
  const without = grouped.filter(({ group }) => group === null).map(({ node }) => node);
  const sections: NodeSection[] = [
    {
      title: 'Main and shadow',
      note: 'Main runs attention and routers; shadow runs ahead and predicts experts',
      look: 'wide',
      nodes: ['main', 'shadow'].flatMap((role) => nodes.filter((node) => node.role === role)),
    },
    ...groups.map((_, index): NodeSection => ({
      title: `Group ${index}`,
      note: groupNote(index, groups.length, expertLayers),
      look: 'plain',
      nodes: grouped.filter(({ group }) => group === index).map(({ node }) => node),
    })),
    {
      title: 'Unplaced workers',
      note: 'They take over when a worker is lost',
      look: 'plain',
      nodes: without.filter(({ state }) => state === 'up'),
    },
    {
      title: 'Fetching',
      note: 'They join when their experts are there',
      look: 'plain',
      nodes: without.filter(({ state }) => state === 'fetching'),
    },
    {
      title: 'Drained',
      note: 'They get no new work',
      look: 'plain',
      nodes: without.filter(({ state }) => state === 'draining' || state === 'mayGo'),
    },
    {
      title: 'Lost',
      note: 'They were here, and are so no longer',
      look: 'urgent',
      nodes: without.filter(({ state }) => state === 'lost'),
    },
  ];
  return sections.filter((section) => section.nodes.length > 0);
}

function groupNote(group: number, groups: number, expertLayers: number): string {
  const layers = layersOfGroup(group, groups, expertLayers);
  if (groups === 1) return `Experts of all ${expertLayers} layers`;
  return `Experts of layers ${formatLayers(layers)}`;
}
