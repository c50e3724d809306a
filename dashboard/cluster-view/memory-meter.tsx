import type { JSX } from 'preact';
import type { MemoryView } from '../../shared/wire/cluster-events.js';
import { formatBytes } from '../../shared/base/text/units.js';
import { MEMORY_TITLES, memoryBar, type MemoryBar } from './memory-parts.js';

/** A bar with kinds of memory. Pointer or focus show its numbers, and screen readers read them. */
export function MemoryMeter({ memory }: { memory: MemoryView }): JSX.Element {
  const bar = memoryBar(memory);
  return (
    <div class="memory">
      <p class="memory-head">
        <span class="quiet small">Memory</span>
        <span class="small number">
          {formatBytes(memory.usedBytes)}
          {memory.budgetBytes > 0 && <span class="quiet"> of {formatBytes(memory.budgetBytes)}</span>}
        </span>
      </p>
      <div class="memory-bar" role="img" tabIndex={0} aria-label={`Memory: ${sentencesOf(memory, bar)}`}>
        <div class="memory-track">
          {bar.parts.map(({ kind, length }) => (
            <span key={kind} class={`memory-part memory-${kind}`} style={{ width: `${100 * length}%` }} />
          ))}
          {bar.highWater > 0 && <span class="memory-mark" style={{ left: `${100 * bar.highWater}%` }} />}
        </div>
        <MemoryTable memory={memory} bar={bar} />
      </div>
    </div>
  );
}

/** The sums that are listed below the kinds: title and bytes. */
function sumsOf(memory: MemoryView): [string, number][] {
  const sums: [string, number][] = [
    ['In use', memory.usedBytes],
    ['Most so far', memory.highWaterBytes],
    ['Budget', memory.budgetBytes],
    ['Host memory', memory.residentBytes],
  ];
  return sums.filter(([, bytes]) => bytes > 0);
}

function sentencesOf(memory: MemoryView, { parts }: MemoryBar): string {
  const kinds = parts.map(({ kind, bytes }): [string, number] => [MEMORY_TITLES[kind], bytes]);
  return [...kinds, ...sumsOf(memory)].map(([title, bytes]) => `${title} ${formatBytes(bytes)}`).join(', ');
}

function MemoryTable({ memory, bar }: { memory: MemoryView; bar: MemoryBar }): JSX.Element {
  return (
    <div class="memory-table small" aria-hidden="true">
      {bar.parts.map(({ kind, bytes }) => (
        <p key={kind}>
          <span class={`swatch memory-${kind}`} />
          <span>{MEMORY_TITLES[kind]}</span>
          <span class="number">{formatBytes(bytes)}</span>
          {kind === 'keyValues' && memory.prefixBytes > 0 && (
            <span class="memory-of-these quiet">
              {formatBytes(memory.prefixBytes)} of these are prefixes kept for reuse
            </span>
          )}
        </p>
      ))}
      {sumsOf(memory).map(([title, bytes]) => (
        <p key={title} class="quiet">
          <span />
          <span>{title}</span>
          <span class="number">{formatBytes(bytes)}</span>
        </p>
      ))}
    </div>
  );
}
