import type { JSX } from 'preact';
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import { commonExtent, type TitledTimeline } from './svg-export.js';
import { drawingWidth, drawTimeline, type VisiblePixels } from './timeline-drawing.js';
import { TimingDiagram } from './timing-diagram.js';
import type { Bar, Timeline } from './timeline.js';

/** Least width of a layer without zoom, so that its bars can be distinguished and its number fits. */
const LEAST_LAYER_PIXELS = 30;
/** Width of the area beside the visible part that is also drawn, so that scrolling shows no gaps. */
const BESIDE_PIXELS = 400;
/** The widest diagram that every browser draws. */
const MOST_PIXELS = 1_000_000;

export interface TimingBoxProps {
  diagrams: readonly TitledTimeline[];
  /** Factor of its width without zoom. */
  zoom: number;
  active: Bar | null;
  onActive: (bar: Bar | null, chosen: boolean) => void;
  /** Gets the present scale, for exports. */
  onScale: (pixelsPerMs: number) => void;
}

/** The diagrams, one below the other on one time axis, in a box that scrolls; the lanes' names do not scroll. */
export function TimingBox({ diagrams, zoom, active, onActive, onScale }: TimingBoxProps): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const [visible, setVisible] = useState<VisiblePixels>({ from: 0, to: 2000 });
  const [boxPixels, setBoxPixels] = useState(600);
  const look = (): void => {
    const { scrollLeft = 0, clientWidth = 600 } = box.current ?? {};
    setVisible({ from: scrollLeft - BESIDE_PIXELS, to: scrollLeft + clientWidth + BESIDE_PIXELS });
    setBoxPixels(clientWidth);
  };
  useEffect(() => {
    if (box.current === null) return undefined;
    const observer = new ResizeObserver(look);
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  const extent = commonExtent(diagrams.map(({ timeline }) => timeline));
  const pixelsPerMs = scaleOf(diagrams, extent, boxPixels) * zoom;
  useEffect(() => onScale(pixelsPerMs), [pixelsPerMs, onScale]);
  useKeptCentre(box, zoom);
  // A single diagram has its title above the whole box.
  const isTitled = diagrams.length > 1;
  const width = Math.max(1, drawingWidth(extent, pixelsPerMs));
  return (
    <div class="timing">
      <div class="timing-names" aria-hidden="true">
        {diagrams.map(({ title, timeline }) => (
          <Names key={title} timeline={timeline} titled={isTitled} />
        ))}
      </div>
      <div class="timing-scroll" ref={box} onScroll={look}>
        {diagrams.map((diagram) => (
          <div key={diagram.title}>
            {isTitled && <p class="timing-title small">{diagram.title}</p>}
            <Diagram
              diagram={diagram}
              width={width}
              pixelsPerMs={pixelsPerMs}
              visible={visible}
              active={active}
              onActive={onActive}
              beginMs={extent.beginMs}
            />
          </div>
        ))}
      </div>
    </div>
  );
}

/** The scale at which all fits, unless layers would become narrower than their least width. */
function scaleOf(
  diagrams: readonly TitledTimeline[],
  { beginMs, endMs }: { beginMs: number; endMs: number },
  boxPixels: number,
): number {
  const lengthMs = Math.max(1e-3, endMs - beginMs);
  const layers = Math.max(
    1,
    ...diagrams.map(({ timeline }) => timeline.lanes[0]?.bars.filter(({ kind }) => kind === 'attention').length ?? 1),
  );
  return Math.min(MOST_PIXELS, Math.max(boxPixels - 2, layers * LEAST_LAYER_PIXELS)) / lengthMs;
}

/** Keeps the middle of the view in place when the zoom changes. */
function useKeptCentre(box: { current: HTMLDivElement | null }, zoom: number): void {
  const before = useRef(zoom);
  useLayoutEffect(() => {
    const { current } = box;
    if (current === null || before.current === zoom) return;
    const half = current.clientWidth / 2;
    current.scrollLeft = (current.scrollLeft + half) * (zoom / before.current) - half;
    before.current = zoom;
  }, [box, zoom]);
}

function Names({ timeline, titled }: { timeline: Timeline; titled: boolean }): JSX.Element {
  const { lanes } = drawTimeline(timeline, { beginMs: 0, pixelsPerMs: 1 }, { from: 0, to: 0 });
  return (
    <ul class={titled ? 'timing-titled' : ''}>
      {lanes.map(({ name, height }) => (
        <li key={name} style={{ height: `${height}px` }} title={name}>
          <span>{name}</span>
        </li>
      ))}
    </ul>
  );
}

interface DiagramProps {
  diagram: TitledTimeline;
  beginMs: number;
  width: number;
  pixelsPerMs: number;
  visible: VisiblePixels;
  active: Bar | null;
  onActive: (bar: Bar | null, chosen: boolean) => void;
}

function Diagram(props: DiagramProps): JSX.Element {
  const { diagram, beginMs, pixelsPerMs, visible } = props;
  const { title, timeline } = diagram;
  const drawing = useMemo(
    () => drawTimeline(timeline, { beginMs, pixelsPerMs }, visible),
    [timeline, beginMs, pixelsPerMs, visible],
  );
  return <TimingDiagram timeline={timeline} drawing={drawing} title={title} {...props} />;
}
