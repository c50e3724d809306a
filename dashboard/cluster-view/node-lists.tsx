import type { JSX } from 'preact';
import { useCallback, useState } from 'preact/hooks';
import type { ClusterData as Cluster } from '../../shared/wire/cluster-events.js';
import { NodeCard } from './node-card.js';
import { filteredSections, hasRows } from './node-filter.js';
import { NodeRow } from './node-row.js';
import { nodeSections, type NodeSection } from './node-sections.js';

/** All nodes by section: as cards, and in a large cluster the workers as rows, with a field that finds some of them. */
export function NodeLists({ cluster }: { cluster: Cluster }): JSX.Element {
  const [typed, setTyped] = useState('');
  const sections = nodeSections(cluster);
  if (!hasRows(cluster.nodes)) return <Sections sections={sections} cluster={cluster} />;
  const shown = filteredSections(sections, typed);
  return (
    <>
      <NodeFilter
        typed={typed}
        onTyped={setTyped}
        shown={shown.reduce((sum, { nodes }) => sum + nodes.length, 0)}
        all={cluster.nodes.length}
      />
      <Sections sections={shown} cluster={cluster} />
    </>
  );
}

interface FilterProps {
  typed: string;
  onTyped: (typed: string) => void;
  /** Numbers of nodes. */
  shown: number;
  all: number;
}

function NodeFilter({ typed, onTyped, shown, all }: FilterProps): JSX.Element {
  return (
    <search class="node-filter">
      <label for="node-filter" class="quiet small">
        Find nodes
      </label>
      <input
        id="node-filter"
        class="field"
        type="search"
        placeholder="a name, a state, or group 2"
        autocomplete="off"
        spellcheck={false}
        value={typed}
        onInput={({ currentTarget }) => onTyped(currentTarget.value)}
      />
      <p role="status" class="quiet small">
        {typed.trim() === '' ? '' : `${shown === 0 ? 'None' : shown} of ${all} nodes`}
      </p>
    </search>
  );
}

function Sections({ sections, cluster }: { sections: readonly NodeSection[]; cluster: Cluster }): JSX.Element {
  const [open, setOpen] = useState<ReadonlySet<string>>(new Set());
  const toggle = useCallback((id: string): void => setOpen((before) => toggled(before, id)), []);
  const isLarge = hasRows(cluster.nodes);
  const { release } = cluster;
  return (
    <div class={isLarge ? 'node-sections node-sections-large' : 'node-sections'}>
      {sections.map(({ title, note, look, nodes }) => (
        <section key={title} class={`node-section ${look} span-${Math.min(4, nodes.length)}`} aria-label={title}>
          <header class="section-head">
            <h2>{title}</h2>
            <p class="quiet small">{note}</p>
          </header>
          <ul class={isLarge && look !== 'wide' ? 'node-rows' : 'node-grid'}>
            {nodes.map((node) =>
              isLarge && node.role === 'worker' ? (
                <NodeRow key={node.id} node={node} release={release} isOpen={open.has(node.id)} onToggle={toggle} />
              ) : (
                <NodeCard key={node.id} node={node} release={release} />
              ),
            )}
          </ul>
        </section>
      ))}
    </div>
  );
}

function toggled(before: ReadonlySet<string>, id: string): ReadonlySet<string> {
  const after = new Set(before);
  if (!after.delete(id)) after.add(id);
  return after;
}
