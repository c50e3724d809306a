import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { ChatView } from '../chat-view/chat-view.js';
import { ClusterView } from '../cluster-view/cluster-view.js';
import { useDashboard } from '../feed/dashboard-store.js';
import type { Connection, DashboardState } from '../feed/dashboard-state.js';
import { TimeView } from '../time-view/time-view.js';
import { TokenView } from '../token-view/token-view.js';
import { ConnectionNote } from './connection-note.js';
import { ChatIcon, ClusterIcon, MoonIcon, SunIcon, TimeIcon, TokenIcon } from '../elements/icons.js';
import { LogIn, LogOut } from './log-in.js';
import { ROUTES, ROUTE_TITLES, useRoute, type Route } from './routes.js';
import { isDark, rememberTheme } from '../elements/theme.js';

const VIEWS: Record<Route, () => JSX.Element> = {
  cluster: ClusterView,
  token: TokenView,
  time: TimeView,
  chat: ChatView,
};

const ICONS: Record<Route, () => JSX.Element> = {
  cluster: ClusterIcon,
  token: TokenIcon,
  time: TimeIcon,
  chat: ChatIcon,
};

const selectConnection = (state: DashboardState): Connection => state.connection;
const selectName = (state: DashboardState): string => state.cluster?.name ?? '';

/** Header, tabs, and the view that the address names. */
export function Frame(): JSX.Element {
  const route = useRoute();
  const connection = useDashboard(selectConnection);
  const name = useDashboard(selectName);
  useEffect(() => {
    document.title = [ROUTE_TITLES[route], name, 'odmoe'].filter((part) => part !== '').join(' · ');
  }, [route, name]);
  const View = VIEWS[route];
  return (
    <div class="frame">
      <a class="skip-link" href="#view" onClick={focusView}>
        Skip to the view
      </a>
      <header class="header">
        <p class="brand">odmoe{name !== '' && <span class="brand-cluster">{name}</span>}</p>
        {connection !== 'locked' && <Tabs route={route} />}
        <div class="header-end">
          {connection !== 'locked' && <LogOut />}
          <ThemeSwitch />
        </div>
      </header>
      <ConnectionNote connection={connection} />
      <main id="view" class={`view view-${route}`} tabIndex={-1}>
        {connection === 'locked' ? <LogIn /> : <View />}
      </main>
    </div>
  );
}

/** The address names a view, not a place in it. */
function focusView(event: Event): void {
  event.preventDefault();
  document.getElementById('view')?.focus();
}

function Tabs({ route }: { route: Route }): JSX.Element {
  return (
    <nav class="tabs" aria-label="Views">
      {ROUTES.map((each) => {
        const Icon = ICONS[each];
        return (
          <a key={each} class="tab" href={`#${each}`} aria-current={each === route ? 'page' : undefined}>
            <Icon />
            <span>{ROUTE_TITLES[each]}</span>
          </a>
        );
      })}
    </nav>
  );
}

function ThemeSwitch(): JSX.Element {
  const [dark, setDark] = useState(isDark);
  const change = (): void => {
    rememberTheme(dark ? 'light' : 'dark');
    setDark(!dark);
  };
  return (
    <button
      type="button"
      class="icon-button"
      onClick={change}
      aria-label={dark ? 'Use light colours' : 'Use dark colours'}
    >
      {dark ? <SunIcon /> : <MoonIcon />}
    </button>
  );
}
