import type { ComponentChildren, JSX } from 'preact';
import type { NodeView } from '../../shared/wire/cluster-events.js';
import { formatBytes, formatDuration } from '../../shared/base/text/units.js';
import { useIsSilent } from '../feed/dashboard-store.js';
import { formatCount, formatFigure, formatMilliseconds, formatShare, NOTHING } from '../format/quantities.js';
import { MemoryMeter } from './memory-meter.js';
import { NodeState } from './node-state.js';

interface NodeProps {
  node: NodeView;
  /** The odmoe version of main. */
  release: string;
}

export function NodeCard({ node, release }: NodeProps): JSX.Element {
  return (
    <li class={`card node node-${node.state}`} data-node={node.id} data-state={node.state}>
      <header class="node-head">
        <h3>{node.id}</h3>
        {node.role !== node.id && <span class="quiet small">{node.isOnMain ? `${node.role} on main` : node.role}</span>}
        <NodeState node={node} />
      </header>
      <NodeDetails node={node} release={release} />
    </li>
  );
}

/** All about a node but its name and its state. */
export function NodeDetails({ node, release }: NodeProps): JSX.Element {
  const isSilent = useIsSilent();
  return (
    <>
      <p class="quiet small node-device" title={node.deviceReason}>
        {node.device}
        {node.deviceReason !== '' && <span class="unseen"> ({node.deviceReason})</span>}
      </p>
      {node.state === 'lost' ? (
        <p class="node-reason">{node.reason === '' ? 'It no longer answers.' : `Lost: ${node.reason}`}</p>
      ) : (
        <>
          {node.fetch !== null && <FetchProgress fetch={node.fetch} />}
          <div class="node-body">
            <div class="node-meters">
              {node.isOnMain ? (
                <p class="quiet small">Its memory is a part of main's.</p>
              ) : (
                <MemoryMeter memory={node.memory} />
              )}
              <WaitMeter node={node} />
              <HopTable node={node} />
            </div>
            <NodeFigures node={node} />
          </div>
        </>
      )}
      <footer class="node-foot quiet small">
        <span class="number">{node.address}</span>
        {node.state !== 'lost' && (
          <span class="number">
            {isSilent && 'was '}up {formatDuration(node.uptimeMs)}
          </span>
        )}
        {node.release !== release && (
          <span class="warn">
            odmoe {node.release}, main has {release}
          </span>
        )}
      </footer>
    </>
  );
}

function FetchProgress({ fetch }: { fetch: NonNullable<NodeView['fetch']> }): JSX.Element {
  const share = fetch.neededBytes === 0 ? 1 : fetch.heldBytes / fetch.neededBytes;
  return (
    <div class="fetch">
      <p class="memory-head">
        <span class="quiet small">Experts on its disk</span>
        <span class="small number">
          {formatBytes(fetch.heldBytes)}
          <span class="quiet"> of {formatBytes(fetch.neededBytes)}</span>
        </span>
      </p>
      <progress class="fetch-bar" max={1} value={share} aria-label="Experts on its disk" />
      {fetch.problem !== '' && <p class="problem-text small">{fetch.problem}</p>}
    </div>
  );
}

/** Main's mean wait for a worker in a pass, by cause. */
function WaitMeter({ node: { waits } }: { node: NodeView }): JSX.Element | null {
  if (waits === null) return null;
  const parts = [
    { name: 'stall', title: 'stalled by loads', durationMs: waits.stallMs },
    { name: 'execute', title: 'executing', durationMs: waits.executeMs },
    { name: 'other', title: 'under way and other', durationMs: waits.otherMs },
  ];
  const total =
    Math.max(
      waits.waitMs,
      parts.reduce((sum, { durationMs }) => sum + durationMs, 0),
    ) || 1;
  return (
    <div class="waits">
      <p class="memory-head">
        <span class="quiet small">Main waits</span>
        <span class="small number">{formatMilliseconds(waits.waitMs)}</span>
      </p>
      <div class="waits-bar" aria-hidden="true">
        {parts.map(({ name, durationMs }) => (
          <span key={name} class={`waits-${name}`} style={{ width: `${(100 * durationMs) / total}%` }} />
        ))}
      </div>
      <p class="waits-legend quiet small">
        {parts.map(({ name, title, durationMs }) => (
          <span key={name} class="number">
            <span class={`swatch waits-${name}`} />
            <span title={title}>{name}</span> {formatFigure(durationMs)}
          </span>
        ))}
      </p>
    </div>
  );
}

/** Stages of recent messages from main that loaded nothing. */
function HopTable({ node: { hops } }: { node: NodeView }): JSX.Element | null {
  if (hops === null) return null;
  const { median, p99 } = hops;
  const rows = [
    ['Hop', median.roundTripMs, p99.roundTripMs],
    ['transit', median.transitMs, p99.transitMs],
    ['call', median.callMs, p99.callMs],
    ['hand-off', median.handOffMs, p99.handOffMs],
    ['execute', median.executeMs, p99.executeMs],
    ['reply', median.replyMs, p99.replyMs],
  ] as const;
  return (
    <table class="hops small">
      <thead class="quiet">
        <tr>
          <th scope="col">ms of the last hops</th>
          <th scope="col">p50</th>
          <th scope="col">p99</th>
        </tr>
      </thead>
      <tbody>
        {rows.map(([title, medianMs, p99Ms]) => (
          <tr key={title}>
            <th scope="row">{title}</th>
            <td class="number">{medianMs.toFixed(2)}</td>
            <td class="number">{p99Ms.toFixed(2)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Figure({ title, children }: { title: string; children: ComponentChildren }): JSX.Element {
  return (
    <div>
      <dt class="quiet">{title}</dt>
      <dd class="number">{children}</dd>
    </div>
  );
}

/** Figures of a node, one per line; figures without a value yet are left out. */
function NodeFigures({ node }: { node: NodeView }): JSX.Element {
  const { link, slots, waits } = node;
  return (
    <dl class="figures small">
      {link !== null && (
        <>
          <Figure title="Round trip">{link.roundTripMs === 0 ? NOTHING : formatMilliseconds(link.roundTripMs)}</Figure>
          <Figure title="Sent to it">{formatBytes(link.sentBytes)}</Figure>
          <Figure title="Received">{formatBytes(link.receivedBytes)}</Figure>
        </>
      )}
      {waits !== null && <Figure title="Last to answer">{formatShare(waits.lastShare)}</Figure>}
      {slots !== null && (
        <Figure title="Slots in use">
          {slots.inUse} of {slots.count}
        </Figure>
      )}
      {node.role !== 'worker' && node.memory.residentBytes > 0 && (
        <Figure title="Host memory">{formatBytes(node.memory.residentBytes)}</Figure>
      )}
      {node.loads > 0 && <LoadFigures node={node} />}
    </dl>
  );
}

function LoadFigures({ node }: { node: NodeView }): JSX.Element {
  return (
    <>
      <Figure title="Loads">{formatCount(node.loads)}</Figure>
      <Figure title="A load takes">{formatMilliseconds(node.loadMsMean)}</Figure>
      <Figure title="Reloads">{formatCount(node.reloads)}</Figure>
      <Figure title="Disk read">{formatBytes(node.storageReadBytes)}</Figure>
    </>
  );
}
