import type { NodeView } from '../../shared/wire/cluster-events.js';
import type { NodeSection } from './node-sections.js';
import { stateWords } from './state-words.js';

/** With more workers than this, each has one row in place of a card. */
export const MOST_CARDS = 8;

export function hasRows(nodes: readonly Pick<NodeView, 'role'>[]): boolean {
  return nodes.filter(({ role }) => role === 'worker').length > MOST_CARDS;
}

const GROUP = /\bgroup\s+(\d+)/g;

/**
 * The sections with the nodes that fit what the reader typed, each word of it: a part of the id, the begin of the state, the role or the section's
 * title, or "group 2". Nothing typed: all nodes.
 */
export function filteredSections(sections: readonly NodeSection[], typed: string): NodeSection[] {
  const text = typed.toLowerCase();
  const groups = [...text.matchAll(GROUP)].map(([, number = '']) => `group ${Number(number)}`);
  const words = text
    .replace(GROUP, ' ')
    .split(/\s+/)
    .filter((word) => word !== '');
  return sections
    .map((section): NodeSection => {
      // The title of main's section names both of its nodes.
      const title = section.look === 'wide' ? '' : section.title.toLowerCase();
      const isAsked = groups.every((group) => group === title);
      const nodes = section.nodes.filter((node) => isAsked && words.every((word) => fits(node, title, word)));
      return { ...section, nodes };
    })
    .filter(({ nodes }) => nodes.length > 0);
}

function fits(node: NodeView, title: string, word: string): boolean {
  if (node.id.toLowerCase().includes(word)) return true;
  // A number names no group here: "2" would find all of group 2 beside worker-2.
  if (/^\d+$/.test(word)) return false;
  return [stateWords(node), node.role, title].some((words) => words.split(' ').some((each) => each.startsWith(word)));
}
