import type { ComponentChildren, JSX } from 'preact';

/** An icon in the text's colour. Screen readers skip it, because the text beside it has the same meaning. */
function Icon({ children }: { children: ComponentChildren }): JSX.Element {
  return (
    <svg
      class="icon"
      viewBox="0 0 24 24"
      fill="none"
      stroke="currentColor"
      stroke-width="1.75"
      stroke-linecap="round"
      stroke-linejoin="round"
      aria-hidden="true"
    >
      {children}
    </svg>
  );
}

/** Two boxes, with a wire to a third one. */
export function ClusterIcon(): JSX.Element {
  return (
    <Icon>
      <rect x="8.5" y="3" width="7" height="6" rx="1.5" />
      <rect x="2.5" y="15" width="7" height="6" rx="1.5" />
      <rect x="14.5" y="15" width="7" height="6" rx="1.5" />
      <path d="M12 9v3M6 15v-3h12v3" />
    </Icon>
  );
}

/** Bars of a timing diagram. */
export function TokenIcon(): JSX.Element {
  return (
    <Icon>
      <path d="M3 6h7M8 12h9M14 18h7" stroke-width="3" />
    </Icon>
  );
}

export function TimeIcon(): JSX.Element {
  return (
    <Icon>
      <path d="M3 4v16h18" />
      <path d="M6.5 14.5l4-4.5 3.5 3 6-7" />
    </Icon>
  );
}

export function ChatIcon(): JSX.Element {
  return (
    <Icon>
      <path d="M4 5.5h16v11H11l-4.5 4v-4H4z" />
    </Icon>
  );
}

/** A box with a keyhole. */
export function MachinesIcon(): JSX.Element {
  return (
    <Icon>
      <rect x="4.5" y="9.5" width="15" height="11" rx="2" />
      <path d="M8 9.5V7a4 4 0 0 1 8 0v2.5M12 14v2.5" />
    </Icon>
  );
}

export function SunIcon(): JSX.Element {
  return (
    <Icon>
      <circle cx="12" cy="12" r="4" />
      <path d="M12 2.5v2M12 19.5v2M2.5 12h2M19.5 12h2M5.3 5.3l1.4 1.4M17.3 17.3l1.4 1.4M5.3 18.7l1.4-1.4M17.3 6.7l1.4-1.4" />
    </Icon>
  );
}

export function MoonIcon(): JSX.Element {
  return (
    <Icon>
      <path d="M20 14.5A8.5 8.5 0 0 1 9.5 4a8.5 8.5 0 1 0 10.5 10.5z" />
    </Icon>
  );
}

/** A sheet with a folded corner and a plus. */
export function FileIcon(): JSX.Element {
  return (
    <Icon>
      <path d="M13.5 3H6v18h12V7.5z" />
      <path d="M13.5 3v4.5H18M12 11.5v6M9 14.5h6" />
    </Icon>
  );
}

/** A key with a letter. */
export function KeysIcon(): JSX.Element {
  return (
    <Icon>
      <rect x="2.5" y="6" width="19" height="12" rx="2" />
      <path d="M6.5 10h.01M10 10h.01M14 10h.01M17.5 10h.01M8 14.5h8" />
    </Icon>
  );
}

export function CopyIcon(): JSX.Element {
  return (
    <Icon>
      <rect x="8.5" y="8.5" width="12" height="12" rx="2" />
      <path d="M15.5 8.5v-3a2 2 0 0 0-2-2h-8a2 2 0 0 0-2 2v8a2 2 0 0 0 2 2h3" />
    </Icon>
  );
}

export function CheckIcon(): JSX.Element {
  return (
    <Icon>
      <path d="M4.5 12.5l5 5 10-11" />
    </Icon>
  );
}

export function AlertIcon(): JSX.Element {
  return (
    <Icon>
      <path d="M12 3.5l9.5 16.5h-19z" />
      <path d="M12 10v4.5M12 17.2v.1" />
    </Icon>
  );
}

/** Points to the right; the styles turn it down where what it stands for is open. */
export function ChevronIcon(): JSX.Element {
  return (
    <Icon>
      <path d="M9 5l7 7-7 7" />
    </Icon>
  );
}
