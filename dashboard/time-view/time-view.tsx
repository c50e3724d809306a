import type { JSX } from 'preact';

export function TimeView(): JSX.Element {
  return <h1>Over time</h1>;
}
