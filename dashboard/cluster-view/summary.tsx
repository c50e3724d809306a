import type { JSX } from 'preact';
import type { ClusterData, FigureSample } from '../../shared/wire/cluster-events.js';
import { modelFacts } from './model-facts.js';
import { formatCount, formatFigure, formatShare, NOTHING } from '../format/quantities.js';

/** The present figures of the whole cluster. */
export function Summary({ cluster, latest }: { cluster: ClusterData; latest: FigureSample | null }): JSX.Element {
  const lost = cluster.nodes.filter(({ state }) => state === 'lost').length;
  const recall = latest?.recall ?? null;
  return (
    <section class="summary" aria-label="Now">
      <dl class="tiles">
        <Tile title="Tokens/s" value={latest === null ? NOTHING : formatFigure(latest.tokensPerS)} />
        <Tile
          title="Requests"
          value={formatCount(cluster.activeRequests)}
          note={cluster.queuedRequests > 0 ? `${formatCount(cluster.queuedRequests)} waiting` : ''}
        />
        <Tile title="Recall" value={recall === null ? NOTHING : formatShare(recall)} />
        <Tile
          title="Nodes"
          value={formatCount(cluster.nodes.length - lost)}
          note={lost > 0 ? `${lost} lost` : ''}
          isBad={lost > 0}
        />
      </dl>
      <p class="model">
        <span class="model-name">{cluster.model.name}</span>
        <span class="quiet small">{modelFacts(cluster).join(' · ')}</span>
      </p>
    </section>
  );
}

interface TileFacts {
  title: string;
  value: string;
  note?: string;
  isBad?: boolean;
}

function Tile({ title, value, note = '', isBad = false }: TileFacts): JSX.Element {
  return (
    <div class="tile">
      <dt class="quiet small">{title}</dt>
      <dd>
        <span class="tile-value">{value}</span>
        {note !== '' && <span class={isBad ? 'tile-note bad' : 'tile-note quiet'}>{note}</span>}
      </dd>
    </div>
  );
}
