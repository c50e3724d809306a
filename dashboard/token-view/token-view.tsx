import type { JSX } from 'preact';
import { useCallback, useMemo, useRef, useState } from 'preact/hooks';
import type { ClusterData, PassTimeline } from '../../shared/wire/cluster-events.js';
import type { DashboardState } from '../feed/dashboard-state.js';
import { saveFile } from '../elements/save-file.js';
import { useDashboard } from '../feed/dashboard-store.js';
import { chromeTrace } from './chrome-trace.js';
import { LIVE, passTitle, pause, shownPasses, type PassChoice } from './pass-choice.js';
import { PassControls } from './pass-controls.js';
import { passFigures } from './pass-figures.js';
import { DifferencesTable, FiguresTable, PassNumbers } from './pass-numbers.js';
import { timelineSvg, type TitledTimeline } from './svg-export.js';
import { timelineOf, type Bar } from './timeline.js';
import { TimingBox } from './timing-box.js';
import { TimingLegend } from './timing-diagram.js';

const selectPasses = (state: DashboardState): readonly PassTimeline[] => state.passes;
const selectCluster = (state: DashboardState): ClusterData | null => state.cluster;

/** The timing diagram of the newest pass, or of the chosen passes. */
export function TokenView(): JSX.Element {
  const newest = useDashboard(selectPasses);
  const cluster = useDashboard(selectCluster);
  const [choice, setChoice] = useState<PassChoice>(LIVE);
  const shown = shownPasses(choice, newest);
  if (shown.shown === null) {
    return (
      <section class="token-view">
        <h1>A token</h1>
        <p class="quiet">No pass has run yet. Ask something, in Chat or from anywhere else, and watch it here.</p>
      </section>
    );
  }
  const hold = (): void => {
    if (choice.paused === null) setChoice(pause(newest));
  };
  return (
    <section class="token-view">
      <h1>{passTitle(shown.shown)}</h1>
      <PassControls choice={choice} shown={shown} newest={newest} onChoice={setChoice} />
      <Passes shown={shown.shown} compared={shown.compared} workers={workersOf(cluster)} onHold={hold} />
    </section>
  );
}

/** The ids of the workers as JSON: group by group, then workers without a group. */
function workersOf(cluster: ClusterData | null): string {
  const grouped = cluster?.groups.flat() ?? [];
  const others = cluster?.nodes.filter(({ role, state }) => role === 'worker' && state === 'up') ?? [];
  return JSON.stringify([...new Set([...grouped, ...others.map(({ id }) => id)])]);
}

interface PassesProps {
  shown: PassTimeline;
  compared: PassTimeline | null;
  /** Ids of workers as JSON text, so that equal lists are equal values. */
  workers: string;
  /** Called when the user looks at a bar, so that the diagram stays. */
  onHold: () => void;
}

const ZOOM_STEP = 1.6;
const MOST_ZOOM = ZOOM_STEP ** 10;

function Passes({ shown, compared, workers, onHold }: PassesProps): JSX.Element {
  const [zoom, setZoom] = useState(1);
  const [active, setActive] = useState<Bar | null>(null);
  const scale = useRef(1);
  const rememberScale = useCallback((pixelsPerMs: number) => (scale.current = pixelsPerMs), []);
  const diagrams = useMemo(
    () => titled([shown, ...(compared === null ? [] : [compared])], workers),
    [shown, compared, workers],
  );
  const figures = useMemo(() => passFigures(shown), [shown]);
  const comparedFigures = useMemo(() => (compared === null ? null : passFigures(compared)), [compared]);
  const tell = (bar: Bar | null, chosen: boolean): void => {
    setActive(bar);
    if (chosen) onHold();
  };
  const isShown = diagrams.some(({ timeline }) => timeline.lanes.some(({ bars }) => active && bars.includes(active)));
  return (
    <>
      <PassNumbers figures={figures} />
      <div class="card timing-card">
        <div class="timing-tools">
          <Zoom zoom={zoom} onZoom={setZoom} />
          <Exports pass={shown} diagrams={diagrams} scale={scale} />
        </div>
        <TimingBox diagrams={diagrams} zoom={zoom} active={active} onActive={tell} onScale={rememberScale} />
        <p class="timing-status small" role="status">
          {isShown && active !== null ? active.text : 'Point at a bar, or press one, to read what it is.'}
        </p>
        <TimingLegend />
      </div>
      <details class="card" open={comparedFigures !== null}>
        <summary>{comparedFigures === null ? 'Layer by layer' : 'Differences, layer by layer'}</summary>
        {comparedFigures === null ? (
          <FiguresTable figures={figures} />
        ) : (
          <DifferencesTable first={figures} second={comparedFigures} />
        )}
      </details>
    </>
  );
}

function titled(passes: readonly PassTimeline[], workers: string): TitledTimeline[] {
  const names = JSON.parse(workers) as string[];
  return passes.map((pass) => ({ title: passTitle(pass), timeline: timelineOf(pass, names) }));
}

function Zoom({ zoom, onZoom }: { zoom: number; onZoom: (zoom: number) => void }): JSX.Element {
  return (
    <div class="button-row" role="group" aria-label="Zoom">
      <button
        type="button"
        class="button"
        aria-label="Narrower"
        disabled={zoom <= 1 / ZOOM_STEP ** 4}
        onClick={() => onZoom(zoom / ZOOM_STEP)}
      >
        −
      </button>
      <button type="button" class="button" onClick={() => onZoom(1)}>
        Fit
      </button>
      <button
        type="button"
        class="button"
        aria-label="Wider"
        disabled={zoom >= MOST_ZOOM}
        onClick={() => onZoom(zoom * ZOOM_STEP)}
      >
        +
      </button>
    </div>
  );
}

interface ExportsProps {
  pass: PassTimeline;
  diagrams: readonly TitledTimeline[];
  scale: { current: number };
}

/** Buttons to export. The SVG is as wide as the diagram on the page. */
function Exports({ pass, diagrams, scale }: ExportsProps): JSX.Element {
  const name = `odmoe-pass-${pass.number}`;
  const saveTrace = (): void => {
    const [first] = diagrams;
    if (first === undefined) return;
    saveFile(`${name}.json`, 'application/json', JSON.stringify(chromeTrace(pass, first.timeline)));
  };
  const saveSvg = (): void => saveFile(`${name}.svg`, 'image/svg+xml', timelineSvg(diagrams, scale.current));
  return (
    <div class="button-row" role="group" aria-label="Save">
      <button type="button" class="button" onClick={saveSvg}>
        Save SVG
      </button>
      <button
        type="button"
        class="button"
        title="For Perfetto (ui.perfetto.dev) and chrome://tracing"
        onClick={saveTrace}
      >
        Save Chrome trace
      </button>
    </div>
  );
}
