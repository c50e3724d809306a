import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { ChatView } from '../chat-view/chat-view.js';
import { ClusterView } from '../cluster-view/cluster-view.js';
import { useDashboard, useIsSilent } from '../feed/dashboard-store.js';
import type { FeedConnection, DashboardState } from '../feed/dashboard-state.js';
import { MachinesView } from '../machines-view/machines-view.js';
import { waitingWords } from '../machines-view/machines-words.js';
import { TimeView } from '../time-view/time-view.js';
import { TokenView } from '../token-view/token-view.js';
import {
  AlertIcon,
  ChatIcon,
  ClusterIcon,
  MachinesIcon,
  MoonIcon,
  SunIcon,
  TimeIcon,
  TokenIcon,
} from '../elements/icons.js';
import { KeyForm } from '../elements/key-form.js';
import { isDark, rememberTheme } from '../elements/theme.js';
import { startFeed } from '../feed/event-feed.js';
import { LogOut } from './log-out.js';
import { formatClock } from '../format/quantities.js';
import { PAGE_ROUTES, pageTitle, ROUTE_TITLES, type Route } from './page-title.js';

const VIEWS: Record<Route, () => JSX.Element> = {
  cluster: ClusterView,
  machines: MachinesView,
  token: TokenView,
  time: TimeView,
  chat: ChatView,
};

const ICONS: Record<Route, () => JSX.Element> = {
  cluster: ClusterIcon,
  machines: MachinesIcon,
  token: TokenIcon,
  time: TimeIcon,
  chat: ChatIcon,
};

const selectConnection = (state: DashboardState): FeedConnection => state.connection;
const selectIsInsecure = (state: DashboardState): boolean => state.cluster?.isInsecure ?? false;
const selectWaiting = (state: DashboardState): number => state.cluster?.waitingMachines ?? 0;
const selectName = (state: DashboardState): string => state.cluster?.name ?? '';
const selectProblems = (state: DashboardState): number => state.cluster?.problems.length ?? 0;
const selectSilence = (state: DashboardState): number | null => state.silentSinceMs;

/** Header, tabs, and the view that the page's address names. */
export function PageFrame(): JSX.Element {
  const route = useRoute();
  const connection = useDashboard(selectConnection);
  const name = useDashboard(selectName);
  const isSilent = useIsSilent();
  useTitle(route, name, isSilent, connection === 'locked');
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
      <SilenceNote />
      {connection !== 'locked' && <InsecureNote />}
      <main id="view" class={`view view-${route} ${isSilent ? 'view-silent' : ''}`} tabIndex={-1}>
        {connection === 'locked' ? <LogIn /> : <View />}
      </main>
    </div>
  );
}

function useTitle(route: Route, clusterName: string, isSilent: boolean, isLocked: boolean): void {
  const problems = useDashboard(selectProblems);
  useEffect(() => {
    document.title = pageTitle({ route, clusterName, problems, isSilent, isLocked });
  }, [route, clusterName, problems, isSilent, isLocked]);
}

/** Moves the focus to the view, because the address names a view, not an element in it. */
function focusView(event: Event): void {
  event.preventDefault();
  document.getElementById('view')?.focus();
}

function Tabs({ route }: { route: Route }): JSX.Element {
  return (
    <nav class="tabs" aria-label="Views">
      {PAGE_ROUTES.map((each) => {
        const Icon = ICONS[each];
        return (
          <a key={each} class="tab" href={`#${each}`} aria-current={each === route ? 'page' : undefined}>
            <Icon />
            <span>{ROUTE_TITLES[each]}</span>
            {each === 'machines' && <WaitingCount />}
          </a>
        );
      })}
    </nav>
  );
}

/** The number of machines that wait to be let in; null: none does. */
function WaitingCount(): JSX.Element | null {
  const waiting = useDashboard(selectWaiting);
  if (waiting === 0) return null;
  return (
    <span class="tab-count">
      <span aria-hidden="true">{waiting}</span>
      <span class="unseen">: {waitingWords(waiting)}</span>
    </span>
  );
}

/** Warns of a cluster that anybody on the network can use. */
function InsecureNote(): JSX.Element | null {
  if (!useDashboard(selectIsInsecure)) return null;
  return (
    <aside class="insecure-note" aria-label="Warning">
      <AlertIcon />
      <p>
        <strong>This cluster is insecure.</strong> Other machines reach main, and it asks none of them who it is:
        anybody on the network can read what is asked and answered, join, and stop the cluster. To close it, say{' '}
        <code>odmoe cluster init</code> on main's host, start main again without <code>--insecure</code>, and let each
        machine in once.
      </p>
    </aside>
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

/** A note that the shown data is old. Its element is always present, so that screen readers notice its text. */
function SilenceNote(): JSX.Element {
  const sinceMs = useDashboard(selectSilence);
  const hasCluster = useDashboard(selectName) !== '';
  return (
    <div role="status" class="connection">
      {sinceMs !== null && (
        <p class="connection-note">
          <span>
            <strong>Main is silent since {formatClock(sinceMs, Date.now())}.</strong>{' '}
            {hasCluster && 'What you see is the last it said. '}The page asks again by itself.
          </span>
          <button type="button" class="button" onClick={startFeed}>
            Try now
          </button>
        </p>
      )}
    </div>
  );
}

function LogIn(): JSX.Element {
  return (
    <section class="card log-in">
      <h1>This cluster wants a key</h1>
      <p class="quiet">One of the keys in the file that main was started with (--api-keys).</p>
      <KeyForm label="API key" isFirst />
    </section>
  );
}

function routeOf(hash: string): Route {
  const name = hash.replace(/^#/, '').split('/')[0];
  return PAGE_ROUTES.find((route) => route === name) ?? 'cluster';
}

/** The view that the page's address names; it follows changes of the address. */
function useRoute(): Route {
  const [route, setRoute] = useState(() => routeOf(location.hash));
  useEffect(() => {
    const follow = (): void => setRoute(routeOf(location.hash));
    window.addEventListener('hashchange', follow);
    return () => window.removeEventListener('hashchange', follow);
  }, []);
  return route;
}
